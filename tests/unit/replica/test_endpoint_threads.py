"""anyio's limiter follows the limit of requests, until somebody else sets it."""

import asyncio
import threading

from anyio.to_thread import current_default_thread_limiter, run_sync

from pyserve.replica.serving import HANDLER_THREADS_MAX, EndpointThreads


async def test_it_follows_the_limit_between_its_bounds() -> None:
    limiter = current_default_thread_limiter()
    fewest = limiter.total_tokens
    threads = EndpointThreads(100)
    assert 100 == limiter.total_tokens
    for limit, expected in (
        (120, 120),
        (60, 60),
        (1, fewest),
        (1_000_000, HANDLER_THREADS_MAX),
        (41, 41),
    ):
        threads.follow(limit)
        assert expected == limiter.total_tokens


async def test_what_the_application_sets_stays() -> None:
    limiter = current_default_thread_limiter()
    threads = EndpointThreads(100)
    limiter.total_tokens = 7
    threads.follow(120)
    assert 7 == limiter.total_tokens


async def test_those_that_wait_get_the_new_threads() -> None:
    """As ``limits`` arrives: in a callback of the loop, while endpoints block."""
    loop = asyncio.get_running_loop()
    threads = EndpointThreads(41)
    number = 42
    barrier = threading.Barrier(number)
    entered = [asyncio.create_task(run_sync(barrier.wait, 20)) for _ in range(number)]
    while current_default_thread_limiter().statistics().tasks_waiting == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    loop.call_soon(threads.follow, number)
    assert list(range(number)) == sorted(await asyncio.gather(*entered))
