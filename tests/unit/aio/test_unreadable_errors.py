"""Calls end whatever the exception of a handler does when it is looked at."""

import logging
from typing import Any

import grpc
import pytest

from pyserve.aio import ServerSettings
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
