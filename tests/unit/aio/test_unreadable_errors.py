"""Calls end whatever the exception of a handler does when it is looked at."""

import logging
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.aio import ServerSettings, Status
from pyserve.aio._server import Server
from tests.support.waiting import eventually
from tests.unit.aio.fake_ring import FakeServer

pytestmark = pytest.mark.usefixtures("fake_ring")

UNKNOWN = grpc.StatusCode.UNKNOWN.value[0]


def _refuse(self: object, *_: object) -> Any:
    raise LookupError


HOSTILE = {
    "__bool__": _refuse,
    "__str__": _refuse,
    "__getattr__": _refuse,
    "__cause__": property(_refuse),
    "__len__": lambda _: 0,
}


@pytest.mark.parametrize("broken", [RuntimeError("refused"), SystemExit(1)], ids=repr)
async def test_a_call_ends_where_a_handler_of_logging_raises(broken: BaseException) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise broken

    async def call(_request: bytes, _context: Any) -> bytes:
        raise ValueError("text")

    server = Server(settings=ServerSettings())
    handler: Any = grpc.unary_unary_rpc_method_handler(call)
    server.add_registered_method_handlers("p.S", {"Call": handler})
    await server.start()
    native: Any = server.native
    spoilt = Broken()
    logging.getLogger().addHandler(spoilt)
    try:
        answered = native.call("/p.S/Call", b"x")
        await eventually(lambda: not answered.is_active())
    finally:
        logging.getLogger().removeHandler(spoilt)
    assert ("finish", UNKNOWN) == answered.commands[-1][:2]
    await server.stop(None)


@pytest.mark.parametrize("development", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_call_ends(name: str, development: bool, caplog: pytest.LogCaptureFixture) -> None:
    kind = type("HostileError", (Exception,), {name: HOSTILE[name]})

    async def call(_request: bytes, _context: Any) -> bytes:
        raise kind("text")

    server = Server(settings=ServerSettings(development=development))
    handler: Any = grpc.unary_unary_rpc_method_handler(call)
    server.add_registered_method_handlers("p.S", {"Call": handler})
    await server.start()
    native: Any = server.native
    assert isinstance(native, FakeServer)
    answered = native.call("/p.S/Call", b"x")
    await eventually(lambda: not answered.is_active())
    assert ("finish", UNKNOWN) == answered.commands[-1][:2]
    assert ["unexpected HostileError in the handler of /p.S/Call"] == caplog.messages
    assert "raise kind" in str(caplog.records[0].exc_text)
    await server.stop(None)


class HostileType(type):
    def __getattribute__(cls, name: str) -> Any:
        raise LookupError


async def test_a_call_ends_whose_exception_has_a_type_that_cannot_be_read() -> None:
    async def call(_request: bytes, _context: Any) -> bytes:
        raise HostileType("HostileError", (Exception,), {})("text")

    server = Server(settings=ServerSettings())
    handler: Any = grpc.unary_unary_rpc_method_handler(call)
    server.add_registered_method_handlers("p.S", {"Call": handler})
    await server.start()
    native: Any = server.native
    answered = native.call("/p.S/Call", b"x")
    await eventually(lambda: not answered.is_active())
    assert ("finish", UNKNOWN) == answered.commands[-1][:2]
    await server.stop(None)


WORDS = [ValueError("text"), b"text", 7, {"a": 1}]
NOT_FOUND = grpc.StatusCode.NOT_FOUND


async def _aborts(context: Any, words: object) -> None:
    await context.abort(NOT_FOUND, words)


async def _sets(context: Any, words: object) -> None:
    context.set_code(NOT_FOUND)
    context.set_details(words)


async def _raises(_context: Any, words: Any) -> None:
    raise pyserve.Abort(NOT_FOUND, words)


async def _raises_what_was_changed(_context: Any, words: Any) -> None:
    error = pyserve.Abort(NOT_FOUND, "text")
    error.details = words
    raise error


@pytest.mark.parametrize("words", WORDS, ids=repr)
@pytest.mark.parametrize("end", [_aborts, _sets, _raises, _raises_what_was_changed])
async def test_a_call_ends_whose_status_gets_no_text(
    end: Any, words: object, caplog: pytest.LogCaptureFixture
) -> None:
    """To pass the exception itself is a common mistake."""

    async def call(_request: bytes, context: Any) -> bytes:
        await end(context, words)
        return b"x"

    server = Server(settings=ServerSettings(status_of=_status_of))
    handler: Any = grpc.unary_unary_rpc_method_handler(call)
    server.add_registered_method_handlers("p.S", {"Call": handler})
    await server.start()
    native: Any = server.native
    answered = native.call("/p.S/Call", b"x")
    await eventually(lambda: not answered.is_active())
    assert "finish" == answered.commands[-1][0]
    assert answered.commands[-1][1] in {UNKNOWN, NOT_FOUND.value[0]}
    assert type(words).__name__ in caplog.text
    await server.stop(None)


def _status_of(error: BaseException, _context: Any) -> Status | None:
    return Status(error.code, error.details) if isinstance(error, pyserve.Abort) else None
