"""What ``pyserve call`` makes of its TLS options, and of handshakes that fail."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click
import grpc
import pytest

from pyserve.cli.call import ClientTls
from pyserve.errors import OptionError
from tests.support.authority import Authority, Leaf

_OVER = datetime.timedelta(hours=-1)


@contextmanager
def served(leaf: Leaf | None, *, roots: bytes | None = None) -> Iterator[str]:
    """Run a server, with TLS if it has a certificate; yield its address."""
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        if leaf is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            credentials = grpc.ssl_server_credentials(
                [(leaf.key, leaf.chain)], roots, roots is not None
            )
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def client(
    folder: Path, authority: Authority, leaf: Leaf | None = None, server_name: str | None = None
) -> ClientTls:
    """Return a client that trusts one authority, from files."""
    root, cert, key = folder / "root.crt", folder / "client.crt", folder / "client.key"
    root.write_bytes(authority.certificate)
    if leaf is not None:
        cert.write_bytes(leaf.chain)
        key.write_bytes(leaf.key)
    tls = ClientTls.of(
        False,
        ca=root,
        cert=None if leaf is None else cert,
        key=None if leaf is None else key,
        server_name=server_name,
    )
    assert tls is not None
    return tls


def test_without_an_option_there_is_no_tls() -> None:
    files = {"ca": None, "cert": None, "key": None}
    assert ClientTls.of(False, server_name=None, **files) is None
    assert ClientTls() == ClientTls.of(True, server_name=None, **files)
    assert ClientTls.of(False, server_name="a.example.com", **files) is not None


def test_a_certificate_and_its_key_belong_together(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--key is given without --cert"):
        ClientTls.of(True, ca=None, cert=None, key=tmp_path, server_name=None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello", "root certificates: no PEM certificate in it"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n", "a section has no END line"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no X.509"),
    ],
)
def test_files_that_hold_something_else_are_refused_by_name(
    content: bytes, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "root.crt"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=says) as caught:
        ClientTls.of(True, ca=path, cert=None, key=None, server_name=None)
    assert f"root certificates: {path} in --ca" in str(caught.value)


def test_a_failed_handshake_is_told_with_what_to_do(tmp_path: Path) -> None:
    authority, strange = Authority(), Authority()
    own = authority.issue("spiffe://test/client")
    for leaf, trusted, says in [
        (authority.issue("127.0.0.1", lifetime=_OVER), authority, "is not good today"),
        (authority.issue("127.0.0.1"), strange, "give the root's file with --ca"),
        (authority.issue("a.example.com"), authority, "with --server-name"),
        (None, authority, "does not speak TLS"),
    ]:
        with served(leaf) as address:
            assert says in client(tmp_path, trusted).advice(address), says
    with served(authority.issue("127.0.0.1"), roots=authority.certificate) as address:
        assert "--cert and --key" in client(tmp_path, authority).advice(address)
        refused = client(tmp_path, authority, strange.issue("spiffe://test/client"))
        assert "does not take the certificate" in refused.advice(address)
    with served(authority.issue("a.example.com")) as address:
        fine = client(tmp_path, authority, own, "a.example.com").advice(address)
        assert "look at the server's log" in fine
    assert "cannot be reached" in client(tmp_path, authority).advice(address)
