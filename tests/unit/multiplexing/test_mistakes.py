"""An id that is wrong is the client's mistake: one answer however often it comes, rarely a line."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.exceptions import HTTPException

from benchmarks.virtual_time import run_virtual
from pyserve.errors import Abort, ModelIdMissing, ModelLoadFailed, ModelNotFound
from pyserve.multiplexing import mistakes, multiplexed
from pyserve.multiplexing.cache import CacheOptions
from pyserve.multiplexing.directory import Directory
from pyserve.multiplexing.loader import Loader

Raise = Callable[[str], object]


@pytest.fixture(autouse=True)
def _new_log() -> None:
    for each in mistakes._LOGGER.filters:
        each.forget()  # type: ignore[union-attr]  # its only one


def asked(raises: Raise, times: int, model_id: str = "x") -> list[Exception]:
    """Return what each of several requests for a model gets, one after the other."""

    async def load(model_id: str) -> object:
        return raises(model_id)

    async def ask() -> list[Exception]:
        loader: Loader[Any] = Loader(
            load,
            label="Shelf.get",
            options=CacheOptions(),
            size_of=lambda _model: 0,
            directory=Directory(),
            loop=asyncio.get_running_loop(),
        )
        found = []
        for _ in range(times):
            with pytest.raises(Exception) as caught:  # noqa: PT011  # it is looked at
                await loader.get(model_id)
            found.append(caught.value)
        return found

    answers: list[Exception] = run_virtual(ask())
    return answers


def lookup(model_id: str) -> object:
    return {"known": 1}[model_id]


def refuse(model_id: str) -> object:
    raise ValueError(model_id)


def read(model_id: str) -> object:
    return Path("/nonexistent", model_id).read_text()


def say(model_id: str) -> object:
    raise ModelNotFound(f"never heard of {model_id}")


@pytest.mark.parametrize("raises", [lookup, refuse, read])
def test_what_is_not_there_is_the_clients_mistake(
    raises: Raise, caplog: pytest.LogCaptureFixture
) -> None:
    first, *later = asked(raises, 3)

    assert ["there is no model 'x'"] * 3 == [str(each) for each in (first, *later)]
    assert {ModelNotFound} == {type(each) for each in (first, *later)}
    assert grpc.StatusCode.NOT_FOUND is first.code  # type: ignore[attr-defined]
    # Code that loads it finds the reason in the first exception, and in the log.
    assert first.__cause__ is not None
    (record,) = caplog.records
    assert (logging.WARNING, None) == (record.levelno, record.exc_info)
    assert record.getMessage().startswith("Shelf.get: there is no model 'x' (")


def test_each_id_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    asked(lookup, 2, "a")
    asked(lookup, 2, "b")
    assert ["'a'", "'b'"] == [record.getMessage().split()[5] for record in caplog.records]


@pytest.mark.parametrize(
    "answer",
    [
        Abort(grpc.StatusCode.PERMISSION_DENIED, "not yours"),
        HTTPException(418, "a teapot"),
        ModelNotFound("never heard of it"),
    ],
)
def test_what_the_loader_says_itself_is_said_again(answer: Exception) -> None:
    def raises(_model_id: str) -> object:
        raise answer

    found = asked(raises, 3)

    assert [repr(answer)] * 3 == [repr(each) for each in found]


@pytest.mark.parametrize(
    "raises",
    [lambda _model_id: json.loads("{"), lambda _model_id: 1 / 0],
    ids=["a value that a library refuses", "another error"],
)
def test_what_goes_wrong_otherwise_is_not(raises: Raise) -> None:
    first, second = asked(raises, 2)

    assert not isinstance(first, ModelNotFound)
    assert isinstance(second, ModelLoadFailed)


def test_a_request_without_an_id_is_told_which_header_to_send(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @multiplexed
    async def get_model(model_id: str) -> str:
        return model_id

    async def ask() -> None:
        for _ in range(2):
            with pytest.raises(ModelIdMissing, match="the header serve_multiplexed_model_id"):
                await get_model()

    run_virtual(ask())

    assert grpc.StatusCode.INVALID_ARGUMENT is ModelIdMissing.code
    assert 1 == len(caplog.records)
