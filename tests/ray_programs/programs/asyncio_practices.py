"""Best practices of asyncio: threads for blocking code, executors, generators that are returned."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import pyserve as serve


@serve.deployment(max_ongoing_requests=20)
class Blocking:
    def __call__(self, seconds: float) -> str:
        time.sleep(seconds)
        return threading.current_thread().name

    async def alive(self) -> bool:
        return True


@serve.deployment
class CustomThreadPool:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(max_workers=2, thread_name_prefix="mine"))

    async def thread(self) -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    def _singular_values(self, array: np.ndarray) -> np.ndarray:
        return np.linalg.svd(array, compute_uv=False)

    async def __call__(self, array: np.ndarray) -> np.ndarray:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._singular_values, array)


@serve.deployment
class AsyncStream:
    async def __call__(self, request: Any) -> AsyncIterator[str]:
        async def generator() -> AsyncIterator[str]:
            for number in range(3):
                await asyncio.sleep(0)
                yield f"{number}\n"

        return generator()


blocking = Blocking.bind()
pool = CustomThreadPool.bind()
stream = AsyncStream.bind()
