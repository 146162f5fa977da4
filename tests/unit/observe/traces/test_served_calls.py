"""Spans of calls that a server answers, and what user code sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import SpanProcessor

import pyserve
from pyserve import aio
from pyserve.aio._tasks import DeferredUnary
from pyserve.observe.traces.process import PROCESS_TRACING
from tests.support.waiting import eventually
from tests.unit.observe.traces.conftest import Kept

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED = (("traceparent", f"00-{TRACE}-{CALLER}-01"),)
NOT_SAMPLED = (("traceparent", f"00-{TRACE}-{CALLER}-00"),)


@asynccontextmanager
async def serving(
    function: Any, on_end: Callable[[aio.EndedCall], None] | None = None
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Yield what calls a server that answers by ``function``."""
    server = aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(function)
    server.add_registered_method_handlers("shop.Cart", {"Price": handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    server.tell_ends(on_end)
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary("/shop.Cart/Price")
    finally:
        await server.stop(0)


async def _answer(_request: bytes, _context: Any) -> bytes:
    return b"7"


async def test_a_sampled_call_has_a_span_of_the_server_below_its_caller(kept: Kept):
    async with serving(_answer) as call:
        await call(b"tea", metadata=SAMPLED)

    span = kept.one("shop.Cart/Price")
    assert (trace.SpanKind.SERVER, int(TRACE, 16)) == (span.kind, span.context.trace_id)
    assert span.parent is not None
    assert int(CALLER, 16) == span.parent.span_id
    said = dict(span.attributes or {})
    assert ("grpc", "shop.Cart/Price", "OK", "127.0.0.1") == (
        said["rpc.system.name"],
        said["rpc.method"],
        said["rpc.response.status_code"],
        said["network.peer.address"],
    )
    assert trace.StatusCode.UNSET == span.status.status_code


@pytest.mark.parametrize("metadata", [(), NOT_SAMPLED, (("traceparent", "nonsense"),)])
async def test_other_calls_have_no_span(kept: Kept, metadata: Any):
    async with serving(_answer) as call:
        await call(b"tea", metadata=metadata)
        await call(b"tea", metadata=SAMPLED)

    assert ["shop.Cart/Price"] == kept.names()


@pytest.mark.parametrize("kind", ["task", "thread", "deferred"])
async def test_user_code_sees_the_span_and_adds_its_own(kept: Kept, kind: str):
    tracer = kept.provider.get_tracer("user")

    def work() -> bytes:
        trace.get_current_span().set_attribute("seen", str(baggage.get_baggage("tenant")))
        with tracer.start_as_current_span("look up"):
            return b"7"

    async def in_task(_request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(0)
        return work()

    def in_thread(_request: bytes, _context: Any) -> bytes:
        return work()

    def queue(_request: Any, _context: Any, _source: Any, caller: Any) -> None:
        caller.set_result(work())

    function = {"task": in_task, "thread": in_thread, "deferred": DeferredUnary(queue)}[kind]
    async with serving(function) as call:
        await call(b"tea", metadata=(*SAMPLED, ("baggage", "tenant=blue")))
        await call(b"tea")

    served, own = kept.one("shop.Cart/Price"), kept.all("look up")
    assert "blue" == (served.attributes or {})["seen"]
    # The second belongs to a call that is not traced: it began a trace of the user's own.
    assert [served.context.span_id, None] == [each.parent and each.parent.span_id for each in own]


async def test_what_a_handler_raises_is_told_with_the_code(kept: Kept):
    async def fails(_request: bytes, _context: Any) -> bytes:
        raise LookupError("no tea")

    async with serving(fails) as call:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"tea", metadata=SAMPLED)

    span = kept.one("shop.Cart/Price")
    assert trace.StatusCode.ERROR == span.status.status_code
    assert "UNKNOWN" == (span.attributes or {})["error.type"]
    (event,) = span.events
    said = dict(event.attributes or {})
    assert ("exception", "no tea") == (event.name, said["exception.message"])
    # Of user code alone.
    assert "in fails" in str(said["exception.stacktrace"])
    assert 1 == str(said["exception.stacktrace"]).count("  File ")


async def test_a_status_that_the_handler_chooses_is_that_of_the_span(kept: Kept):
    async def aborts(_request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such tea")
        raise AssertionError

    async with serving(aborts) as call:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"tea", metadata=SAMPLED)

    span = kept.one("shop.Cart/Price")
    assert "no such tea" == span.status.description
    assert "NOT_FOUND" == (span.attributes or {})["rpc.response.status_code"]


async def test_what_is_raised_after_the_end_is_not_told(kept: Kept):
    async def fails_late(_request: bytes, context: Any) -> bytes:
        try:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such tea")
        finally:
            raise LookupError("too late")

    async with serving(fails_late) as call:
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"tea", metadata=SAMPLED)

    span = kept.one("shop.Cart/Price")
    assert ("no such tea", ()) == (span.status.description, tuple(span.events))


async def test_a_processor_that_fails_costs_the_span_and_not_the_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Failing(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise LookupError("no place for it")

    kept = Kept(is_watched=False)
    kept.provider.add_span_processor(Failing())
    monkeypatch.setattr(PROCESS_TRACING, "spans", kept.spans)
    async with serving(_answer) as call:
        assert b"7" == await asyncio.wait_for(call(b"tea", metadata=SAMPLED), 10)

    assert "the span of a call cannot begin" in caplog.text
    kept.spans.close(5.0)


async def test_those_that_nobody_takes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch):
    kept = Kept(is_watched=False)
    monkeypatch.setattr(PROCESS_TRACING, "spans", kept.spans)
    added: list[Any] = []
    monkeypatch.setattr(kept.spans.sources, "add", added.append)
    async with serving(_answer) as call:
        for _ in range(41):
            await asyncio.gather(*(call(b"tea", metadata=SAMPLED) for _ in range(100)))
        (waiting,) = added

        assert {"without_spans": 4} == waiting.stats()
        assert 4096 == len(waiting.take_spans(5_000))
        await call(b"tea", metadata=SAMPLED)
        assert 1 == len(waiting.take_spans(5_000))
    kept.spans.close(5.0)


@pytest.mark.parametrize(("timeout_s", "code"), [(None, "CANCELLED"), (0.05, "DEADLINE_EXCEEDED")])
async def test_calls_that_nobody_waits_for_end_when_their_code_does(
    kept: Kept, timeout_s: float | None, code: str
):
    started = asyncio.Event()

    async def waits(_request: bytes, _context: Any) -> bytes:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(waits) as call:
        waiting: Any = call(b"tea", metadata=SAMPLED, timeout=timeout_s)
        await started.wait()
        if timeout_s is None:
            waiting.cancel()
        await eventually(lambda: bool(kept.names()))
        assert code == (kept.one("shop.Cart/Price").attributes or {})["rpc.response.status_code"]


async def test_without_tracing_calls_with_a_traceparent_are_as_others():
    async def seen(_request: bytes, _context: Any) -> bytes:
        return str(trace.get_current_span().get_span_context().is_valid).encode()

    async with serving(seen) as call:
        assert b"False" == await call(b"tea", metadata=SAMPLED)


async def test_a_batched_handler_is_traced_through_its_batch(kept: Kept):
    class Model:
        @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=10)
        async def predict(self, items: list[bytes]) -> list[bytes]:
            trace.get_current_span().set_attribute("items", len(items))
            return items

    model = Model()

    async def predict(request: bytes, _context: Any) -> bytes:
        return await model.predict(request)

    async with serving(predict) as call:
        await asyncio.gather(call(b"1", metadata=SAMPLED), call(b"2", metadata=SAMPLED), call(b"3"))

    label = Model.predict.__qualname__
    batch, served = kept.one(f"batch {label}"), kept.all("shop.Cart/Price")
    waits = kept.all(f"wait for batch {label}")
    said = dict(batch.attributes or {})
    assert (3, 3, "full") == (
        said["items"],
        said["pyserve.batch.size"],
        said["pyserve.batch.reason"],
    )
    members = {each.context.span_id for each in served}
    assert members == {each.context.span_id for each in batch.links}
    assert batch.parent is not None
    assert batch.parent.span_id in members
    assert members == {each.parent.span_id for each in waits if each.parent is not None}
    for each in (*served, *waits):
        assert [batch.context.span_id] == [one.context.span_id for one in each.links]


async def test_a_batch_of_calls_that_are_not_traced_has_no_span(kept: Kept):
    class Model:
        @pyserve.batch(max_batch_size=1)
        async def predict(self, items: list[bytes]) -> list[bytes]:
            return items

    model = Model()

    async def predict(request: bytes, _context: Any) -> bytes:
        return await model.predict(request)

    async with serving(predict) as call:
        await call(b"1")

    assert [] == kept.names()


async def test_a_channel_of_the_mesh_carries_the_current_span_and_baggage(kept: Kept):
    seen: list[str | None] = []

    async def answer(_request: bytes, _context: Any) -> bytes:
        seen.append(str(baggage.get_baggage("tenant")))
        return b"7"

    server = aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_registered_method_handlers("shop.Cart", {"Price": handler})
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    plain: Any = aio.insecure_channel(address)
    async with aio.Channel(plain._native, outgoing=kept.spans.outgoing) as channel:
        call = channel.unary_unary("/shop.Cart/Price")
        with kept.provider.get_tracer("user").start_as_current_span("caller") as caller:
            token = attach(baggage.set_baggage("tenant", "blue"))
            await call(b"tea")
            # The caller's own decision counts.
            await call(b"tea", metadata=SAMPLED)
            detach(token)
        await call(b"tea")
    await plain.close()
    await server.stop(0)

    parents = [each.parent.span_id for each in kept.all("shop.Cart/Price") if each.parent]
    assert [caller.get_span_context().span_id, int(CALLER, 16)] == parents
    assert ["blue", "blue", "None"] == seen


async def test_a_call_that_is_logged_as_well_has_both_its_span_and_its_line(kept: Kept):
    async def refuse(_request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no tea")
        return b""

    ends: list[aio.EndedCall] = []
    async with serving(refuse, ends.append) as call:
        for metadata in (SAMPLED, NOT_SAMPLED):
            with pytest.raises(grpc.RpcError):
                await call(b"tea", metadata=metadata)
        await eventually(lambda: len(ends) == 2)

    assert [5, 5] == [each.code for each in ends]
    assert ["shop.Cart/Price"] == kept.names()
    assert "NOT_FOUND" == (kept.one("shop.Cart/Price").attributes or {})["rpc.response.status_code"]
