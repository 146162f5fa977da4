"""Exceptions of their own for calls that fail together."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import pyserve
from pyserve.observe.separate import separate
from pyserve.stepping import decorator


class Needing(Exception):
    """Its constructor takes other things than ``args`` has."""

    made = 0

    def __init__(self, left: int, *, right: int) -> None:
        super().__init__(f"{left} and {right}")
        self.left = left
        type(self).made += 1


class Slotted(ValueError):
    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        super().__init__("no")
        self.place = place


def _decode_error() -> UnicodeDecodeError:
    try:
        b"\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


def _json_error() -> json.JSONDecodeError:
    try:
        json.loads("{")
    except json.JSONDecodeError as error:
        return error
    raise AssertionError


ERRORS = [
    ValueError("a", 1),
    KeyError("key"),
    FileNotFoundError(2, "No such file", "x.txt"),
    ImportError("no", name="module", path="there"),
    SyntaxError("bad", ("x.py", 1, 2, "x", 1, 3)),
    StopIteration(3),
    SystemExit(4),
    ExceptionGroup("some", [ValueError("one"), KeyError("two")]),
    _decode_error(),
    _json_error(),
    Needing(1, right=2),
    Slotted("there"),
    pyserve.Abort(pyserve.BatchError.code, "aborted"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_it_is_alike_and_another_one(error: BaseException) -> None:
    made = Needing.made
    error.__cause__ = LookupError("cause")
    copy = separate(error)
    assert copy is not error
    assert type(copy) is type(error)
    assert (copy.args, str(copy), repr(copy)) == (error.args, str(error), repr(error))
    assert copy.__dict__ == error.__dict__
    for name in ("errno", "filename", "name", "path", "value", "code", "pos", "left", "place"):
        assert getattr(copy, name, None) == getattr(error, name, None)
    assert copy.__cause__ is error.__cause__
    assert copy.__traceback__ is error.__traceback__
    assert Needing.made == made


def test_notes_are_of_its_own() -> None:
    error = ValueError("x")
    error.add_note("before")
    copy = separate(error)
    copy.add_note("after")
    assert (error.__notes__, copy.__notes__) == (["before"], ["before", "after"])


def test_one_that_cannot_be_made_stays_itself() -> None:
    class Strict(Exception):
        def __new__(cls) -> Strict:
            return super().__new__(cls)

        def __setattr__(self, name: str, value: object) -> None:
            raise RuntimeError("it is frozen")

        @property
        def code(self) -> object:
            return object()

    error = Strict()
    assert separate(error) is error


class Failing:
    """Every way in which calls fail together."""

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=10)
    async def raised(self, names: list[str]) -> list[str]:
        raise KeyError("all")

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=10)
    async def returned(self, names: list[str]) -> list[Any]:
        return [KeyError("all")] * len(names)

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=10)
    async def too_few(self, names: list[str]) -> list[str]:
        return []

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=10)
    async def yielded(self, names: list[str]) -> Any:
        raise KeyError("all")
        yield names

    @pyserve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id: str) -> str:
        await asyncio.sleep(0)
        raise KeyError("all")


@pyserve.continuous(max_running=4)
class Stepping:
    def admit(self, name: str) -> str:
        return name

    def step(self, states: list[str]) -> list[Any]:
        if len(states) == 4:
            raise KeyError("all")
        return [None] * len(states)


@pytest.mark.parametrize("method", ["raised", "returned", "too_few", "yielded", "model", "steps"])
async def test_calls_that_fail_together_share_nothing(method: str) -> None:
    failing, stepping = Failing(), Stepping()

    async def call(name: str) -> BaseException:
        try:
            if method == "yielded":
                await anext(failing.yielded(name))
            elif method == "model":
                await failing.model("m")
            elif method == "steps":
                await decorator.Answer(stepping, name)
            else:
                await getattr(failing, method)(name)
        except Exception as error:
            error.add_note(f"while {name} was served")
            return error
        raise AssertionError("it fails")

    async with asyncio.timeout(10):
        errors = await asyncio.gather(*map(call, ("ada", "bob", "cyd", "dan")))
    await decorator.close(stepping)
    assert len(set(map(id, errors))) == 4
    assert [each.__notes__ for each in errors] == [
        [f"while {name} was served"] for name in ("ada", "bob", "cyd", "dan")
    ]
