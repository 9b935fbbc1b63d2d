"""The load of long runs: requests at random moments, with heavy-tailed sizes, and their response times."""
import asyncio, bisect, itertools, random, resource, time

PHASES = ((25, 0.2), (25, 1.2))
SIZES = [round(500 * 4000 ** (step / 59)) for step in range(60)]
# Of a Pareto distribution with exponent 1.1, cut off at the last size.
WEIGHTS = [size ** -1.1 for size in SIZES]
SUMS = list(itertools.accumulate(WEIGHTS))
# Heads, segments' headers, handshake and end.
OVERHEAD = lambda size: 700 + 66 * (size // 1448)
# A response that takes longer counts as one that did not come whole.
PATIENCE_S = 600
MEAN = sum(weight * (size + OVERHEAD(size)) for size, weight in zip(SIZES, WEIGHTS)) / SUMS[-1]


def planned(seconds, bits_per_second, seed):
    """When which size is asked for."""
    draw, plan, start = random.Random(seed), [], 0.0
    while start < seconds:
        for length, load in PHASES:
            rate, at = load * bits_per_second / 8 / MEAN, start
            while (at := at + draw.expovariate(rate)) < min(start + length, seconds):
                plan.append((at, SIZES[bisect.bisect(SUMS, draw.uniform(0, SUMS[-1]))]))
            start += length
    return plan


async def ask(size, port):
    """The response time in seconds; None if the response did not come whole."""
    start, writer = time.monotonic(), None
    try:
        reader, writer = await asyncio.open_connection("10.9.0.1", port)
        writer.write(b"GET /%d HTTP/1.0\r\nHost: x\r\n\r\n" % size)
        head = await reader.readuntil(b"\r\n\r\n")
        body = 0
        while read := await reader.read(1 << 16):
            body += len(read)
        return time.monotonic() - start if head.split()[1] == b"200" and body == size else None
    except (OSError, asyncio.IncompleteReadError):
        return None
    finally:
        if writer:
            writer.close()


async def load(plan, ports, look, patience_s=PATIENCE_S):
    """Sends all requests, to the ports in turns. Returns response times, and what `look` sees every 10 s."""
    start, tasks, times, looks = time.monotonic(), set(), [], []

    async def looking():
        while True:
            looks.append({"seconds": time.monotonic() - start} | await asyncio.to_thread(look))
            await asyncio.sleep(10)

    watcher = asyncio.create_task(looking())
    async def asking(size, port):
        try:
            times.append(await asyncio.wait_for(ask(size, port), patience_s))
        except asyncio.TimeoutError:
            times.append(None)

    for (at, size), port in zip(plan, itertools.cycle(ports)):
        await asyncio.sleep(max(0, start + at - time.monotonic()))
        # A task that is over is forgotten: an hour has a million.
        tasks.add(task := asyncio.create_task(asking(size, port)))
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks)
    watcher.cancel()
    return times, looks


def allow_open_files():
    """Raises the limit on open files of this process as far as it may."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
