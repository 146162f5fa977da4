"""Clients of a guarded ingress: one connection for each call, so that each shakes hands."""

from __future__ import annotations

import socket
import ssl
import tempfile
from pathlib import Path

import grpc

from services.echo import echo_pb2, echo_pb2_grpc
from tests.support.authority import Authority, Leaf

TIMEOUT_S = 20.0
ECHO = "/services.echo.Echo/Echo"


def open_channel(address: str, leaf: Leaf | None, *roots: Authority) -> grpc.Channel:
    """Return a channel of grpcio, which shows ``leaf`` and trusts ``roots``."""
    credentials = grpc.ssl_channel_credentials(
        b"".join(root.certificate for root in roots),
        None if leaf is None else leaf.key,
        None if leaf is None else leaf.chain,
    )
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(address, credentials, options=options)


def echo(
    address: str,
    leaf: Leaf | None,
    *roots: Authority,
    token: str | None = None,
    payload: bytes = b"hello",
) -> bytes:
    """Call ``Echo`` over a connection of its own.

    Raises:
        grpc.RpcError: The call failed.
    """
    with open_channel(address, leaf, *roots) as channel:
        request = echo_pb2.EchoRequest(payload=payload)
        stub = echo_pb2_grpc.EchoStub(channel)
        return stub.Echo(request, timeout=TIMEOUT_S, metadata=bearer(token)).payload


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """Return the status of a failed call."""
    assert isinstance(error, grpc.Call)
    return error.code()


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carry a token."""
    return () if token is None else (("authorization", f"Bearer {token}"),)


def tls_context(leaf: Leaf | None, *roots: Authority) -> ssl.SSLContext:
    """Return settings of the standard library's TLS."""
    roots_pem = b"".join(root.certificate for root in roots).decode()
    context = ssl.create_default_context(cadata=roots_pem)
    if leaf is not None:
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.write_bytes(leaf.key + leaf.chain)
            context.load_cert_chain(pair)
    return context


def served_serial(address: str, leaf: Leaf | None, *roots: Authority, name: str = "") -> int:
    """Return the serial number of the certificate that the server shows now.

    Args:
        address: ``host:port``.
        leaf: What the client shows.
        roots: What it trusts.
        name: What the certificate must have; "": the host.
    """
    host, _, port = address.rpartition(":")
    context = tls_context(leaf, *roots)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=name or host) as secure,
    ):
        assert secure.version() == "TLSv1.3"
        found = secure.getpeercert()
        assert found
        return int(str(found["serialNumber"]), 16)
