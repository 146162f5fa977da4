"""Deployments that are ended before they serve; each notes what happens to it in a file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pyserve as serve

# Nobody waits for its end.
_FOR_EVER_S = 600


class _Noting:
    def _note(self, what: str) -> None:
        with self._notes.open("a") as file:  # type: ignore[attr-defined]
            file.write(f"{what}\n")

    def __call__(self) -> None: ...


class _EndsAtOnce(_Noting):
    def __del__(self) -> None:
        self._note("__del__")


class _EndsOnTheLoop(_Noting):
    async def __del__(self) -> None:
        await asyncio.sleep(0.1)
        self._note("__del__")


class _BeginsOnTheLoop(_Noting):
    async def __init__(self, notes: str) -> None:  # type: ignore[misc]
        self._notes = Path(notes)
        self._note("begun")
        try:
            await asyncio.Event().wait()
        finally:
            self._note("left")

    def aclose(self) -> None:
        self._note("aclose")  # Of an instance whose constructor has ended.


class _HoldsTheLoop(_Noting):
    def __init__(self, notes: str) -> None:
        self._notes = Path(notes)
        self._note("begun")
        try:
            time.sleep(_FOR_EVER_S)
        finally:
            self._note("left")


@serve.deployment
class AsyncAsync(_BeginsOnTheLoop, _EndsOnTheLoop): ...


@serve.deployment
class AsyncPlain(_BeginsOnTheLoop, _EndsAtOnce): ...


@serve.deployment
class PlainAsync(_HoldsTheLoop, _EndsOnTheLoop): ...


@serve.deployment
class PlainPlain(_HoldsTheLoop, _EndsAtOnce): ...


@serve.deployment
class WarmsUp(_EndsOnTheLoop):
    def __init__(self, notes: str) -> None:
        self._notes = Path(notes)

    async def warmup(self) -> None:
        self._note("begun")
        try:
            await asyncio.Event().wait()
        finally:
            self._note("left")

    def aclose(self) -> None:
        self._note("aclose")
