#!/usr/bin/env python3
"""Sends requests at random moments: load.py PORT RATE SECONDS SEED POSTS

The moments are a Poisson process, and the work of each request is exponential; SEED decides both. POSTS is the share of
POST requests. Prints the mean, p50 and p99 of the times from the planned moments in ms, then the numbers of requests, of
those lost (no 200 within 5 s), of POST requests among these, and of those late (above 1 s).
"""

import asyncio
import random
import sys

port, rate, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
seed, posts = int(sys.argv[4]), float(sys.argv[5])
idle, times, lost, lost_posts = [], [], 0, 0


async def ask(method, path):
    body = b"content-length: 0\r\n" if method == "POST" else b""
    request = f"{method} {path} HTTP/1.1\r\nhost: site\r\n".encode() + body + b"\r\n"
    while idle and idle[-1][0].at_eof():
        # The proxy has closed it, because it was idle for too long.
        idle.pop()[1].close()
    reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length, chunked, closes = 0, False, False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line[15:])
        chunked |= line.startswith(b"transfer-encoding:")
        closes |= line.startswith(b"connection: close")
    if not chunked:
        await reader.readexactly(length)
    if closes or chunked:
        writer.close()
    else:
        idle.append((reader, writer))
    return head[9:12] == b"200"


async def one(planned, method, path):
    global lost, lost_posts
    loop = asyncio.get_running_loop()
    try:
        well = await asyncio.wait_for(ask(method, path), 5)
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        well = False
    times.append(loop.time() - planned)
    lost += not well
    lost_posts += not well and method == "POST"


async def main():
    loop, chance = asyncio.get_running_loop(), random.Random(seed)
    asking, start, at, number = [], loop.time() + 0.1, 0.0, 0
    while (at := at + chance.expovariate(rate)) < seconds:
        await asyncio.sleep(start + at - loop.time())
        method = "POST" if chance.random() < posts else "GET"
        path = f"/{chance.expovariate(1):.4f}/{seed}-{number}"
        asking.append(asyncio.create_task(one(start + at, method, path)))
        number += 1
    await asyncio.gather(*asking)


asyncio.run(main())
times.sort()
late = sum(time > 1 for time in times)
mean = sum(times) / len(times)
print(f"{1e3 * mean:.2f} {1e3 * times[len(times) // 2]:.2f} {1e3 * times[int(len(times) * 0.99)]:.2f} {len(times)} {lost} {lost_posts} {late}")
