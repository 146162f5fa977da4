"""A replica's server over one object, and plain calls of it as handles make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pyserve.api.handles.failures import FAILURE_KEY, rebuild
from pyserve.api.handles.framing import STREAM, VALUE, RequestHeader, answer_body, frame_request
from pyserve.batching import Batched
from pyserve.config import DeploymentOptions
from pyserve.config.ingress import IngressSettings
from pyserve.replica.checks import check_class
from pyserve.replica.loading import Loaded
from pyserve.replica.servicers import find_services
from pyserve.replica.serving import make_server
from pyserve.serializers import codec, join
from tests.unit.replica.native_client import Client, Outcome


@asynccontextmanager
async def serving(
    instance: object,
    *,
    with_rpcs: bool = False,
    batched: Mapping[str, Batched[Any]] | None = None,
) -> AsyncIterator[Client]:
    """Serve it as ``default/Plain`` until the block ends."""
    kind: Any = type(instance)
    services = find_services(kind) if with_rpcs else ()
    rpcs = check_class(kind, services)[0] if with_rpcs else {}
    server = make_server(
        Loaded(kind, DeploymentOptions(), services, rpcs, (), {}, (), batched or {}),
        instance,
        application="default",
        deployment="Plain",
        replica_id="Plain#1",
        token=b"token",
        development=True,
        limits=IngressSettings(),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = Client("default/Plain", port, b"token", "Plain#1")
    try:
        yield client
    finally:
        client.close()
        await server.stop(0)


def framed(
    *args: object, flags: int = 0, header: RequestHeader | None = None, **kwargs: Any
) -> bytes:
    return join(frame_request(codec("pickle").encode_call(args, kwargs), flags, header))


def value_of(message: bytes | None, name: str = "pickle") -> Any:
    assert message is not None
    assert VALUE == message[0]
    return codec(name).decode(memoryview(answer_body(message)))


def checked(outcome: Outcome) -> Outcome:
    """Raise what the method has raised, as a handle does."""
    if FAILURE_KEY in outcome.trailers:
        raise rebuild(outcome.trailers[FAILURE_KEY])
    return outcome


async def call(client: Client, name: str, *args: object, **kwargs: Any) -> Any:
    outcome = checked(await client.unary(name, framed(*args, **kwargs), timeout_s=None))
    return value_of(outcome.message)


async def items(client: Client, name: str, *args: object) -> list[Any]:
    stream = client.start(name, framed(*args, flags=STREAM), stream=True, timeout_s=None)
    found = [value_of(each) async for each in stream]
    checked(await stream.done)
    return found
