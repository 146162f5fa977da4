"""One server and one channel without a mesh: what certificates do to single connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest

from pyserve import _router, aio
from pyserve.aio._channel import live_channel
from pyserve.aio._credentials import ChannelTls, LiveServerCredentials
from tests.mesh.security.clients import TIMEOUT_S
from tests.support.authority import Authority, Leaf

PATH = "/test.Echo/Echo"


@dataclass(frozen=True)
class Served:
    """A server that takes clients with one of two names, and those without a certificate."""

    tls: _router.ServerTls
    address: str
    root: Authority


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    root = Authority()
    leaf = root.issue("127.0.0.1", "spiffe://test/server")
    tls = _router.ServerTls(
        [(leaf.key, leaf.chain)],
        root.certificate,
        False,
        allowed_names=["spiffe://test/client/*", "*.clients.example.com"],
    )
    server = aio.server()
    echo: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_describe)
    handlers = {"Echo": echo}
    server.add_registered_method_handlers("test.Echo", handlers)
    port = server.add_secure_port("127.0.0.1:0", LiveServerCredentials(tls))
    await server.start()
    try:
        yield Served(tls, f"127.0.0.1:{port}", root)
    finally:
        await server.stop(None)


async def _describe(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    names = context.auth_context().get("x509_subject_alternative_name", [])
    return b" ".join(names)


async def ask(address: str, tls: _router.ClientTls) -> bytes:
    """Call over a new connection."""
    async with live_channel(address, ChannelTls(None, None, None, (), tls)) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        return await call(b"", timeout=TIMEOUT_S)


def client(
    root: Authority, leaf: Leaf | None, *, names: list[str] | None = None
) -> _router.ClientTls:
    key, chain = (None, None) if leaf is None else (leaf.key, leaf.chain)
    return _router.ClientTls(root.certificate, key, chain, None, allowed_names=names)


@pytest.mark.parametrize(
    "name", ["spiffe://test/client/alice", "Alice.clients.example.com"], ids=["uri", "dns"]
)
async def test_a_client_with_an_allowed_name_comes_in(served: Served, name: str) -> None:
    tls = client(served.root, served.root.issue("other.example.com", name))
    assert f"other.example.com {name}".encode() == await ask(served.address, tls)


async def test_where_certificates_are_optional_none_is_better_than_a_wrong_one(
    served: Served,
) -> None:
    assert await ask(served.address, client(served.root, None)) == b""
    for leaf in (
        served.root.issue("spiffe://test/client/alice/below"),
        served.root.issue("clients.example.com"),
        served.root.issue("a.b.clients.example.com"),
        Authority().issue("spiffe://test/client/alice"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(served.address, client(served.root, leaf))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_names_of_servers_replace_the_dialled_one(served: Served) -> None:
    localhost = served.address.replace("127.0.0.1", "localhost")
    # The certificate does not carry this name.
    with pytest.raises(grpc.RpcError):
        await ask(localhost, client(served.root, None))
    named = client(served.root, None, names=["spiffe://test/server"])
    assert await ask(localhost, named) == b""
    with pytest.raises(grpc.RpcError):
        await ask(served.address, client(served.root, None, names=["spiffe://test/other"]))
    with pytest.raises(grpc.RpcError):
        await ask(served.address, client(Authority(), None, names=["spiffe://test/server"]))


async def test_a_client_s_new_root_and_certificate_act_on_its_next_connection(
    served: Served,
) -> None:
    new = Authority()
    leaf = new.issue("127.0.0.1")
    tls = client(served.root, None)
    async with live_channel(served.address, ChannelTls(None, None, None, (), tls)) as channel:
        kept: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        assert await kept(b"", timeout=TIMEOUT_S) == b""
        served.tls.reload([(leaf.key, leaf.chain)], new.certificate)
        with pytest.raises(grpc.RpcError):
            await ask(served.address, tls)
        own = new.issue("spiffe://test/client/alice")
        tls.reload(new.certificate, own.key, own.chain)
        assert await ask(served.address, tls) == b"spiffe://test/client/alice"
        # The connection from before is as it was.
        assert await kept(b"", timeout=TIMEOUT_S) == b""
        with pytest.raises(ValueError, match="no PEM certificate"):
            tls.reload(b"", None, None)
        assert await ask(served.address, tls) == b"spiffe://test/client/alice"
