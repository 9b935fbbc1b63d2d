#!/usr/bin/env python3
"""A server whose requests take time: server.py PORT MS SLOTS LOG

A request for /FACTOR/ID takes FACTOR times MS milliseconds on one of SLOTS slots; others wait. The method and ID of each
request are appended to LOG when its work is done. PUT /ms/MS changes the time.
"""

import asyncio
import sys

port, slots = int(sys.argv[1]), asyncio.Semaphore(int(sys.argv[3]))
ms = float(sys.argv[2])
log = open(sys.argv[4], "a", buffering=1)


async def serve(reader, writer):
    global ms
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line[15:]))
            _, first, second = path.split("/")
            if method == "PUT":
                ms = float(second)
            else:
                if method == "POST":
                    log.write(f"{method} {second}\n")
                async with slots:
                    await asyncio.sleep(float(first) * ms / 1000)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024) as server:
        await server.serve_forever()


asyncio.run(main())
