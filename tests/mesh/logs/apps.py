"""Deployments whose code logs wherever a request may take it."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from starlette.requests import Request

import pyserve
from pyserve.handle import DeploymentHandle

LOGGER = logging.getLogger("shop")


@pyserve.deployment
class Child:
    """Logs in a coroutine and in a thread."""

    async def greet(self, text: str) -> str:
        LOGGER.warning("child %s", text)
        return text

    def greet_in_thread(self, text: str) -> str:
        LOGGER.warning("thread %s", text)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, LOGGER.warning, "own thread %s", text).result()
        return text


@pyserve.deployment
class Shop:
    """Logs, and has its child log, what the client says."""

    def __init__(self, child: DeploymentHandle) -> None:
        self._child = child
        LOGGER.warning("constructed")

    async def __call__(self, request: Request) -> str:
        text = request.query_params["text"]
        LOGGER.warning("shop %s", text)
        if "die" in text:
            print("last words")
            sys.stdout.flush()
            os._exit(3)
        if "fail" in text:
            raise LookupError(text)
        await self._child.greet.remote(text)
        await self._child.greet_in_thread.remote(text)
        await self.batched(text)
        return text

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0)
    async def batched(self, texts: list[str]) -> list[str]:
        LOGGER.warning("batch %s", texts[0])
        return texts


app = Shop.bind(Child.bind())
