"""TLS, client certificates, and credentials of calls."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import SERVICE, Network, Stub, echo, failure, responses, unary, within
from tests.support.authority import Authority, Leaf

# Of every auth context.
_PROTECTED = {
    "transport_security_type": [b"ssl"],
    "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"],
    "ssl_session_reused": [b"false"],
    "ssl_tls_version": [b"TLSv1.3"],
}
# What an end offers in a handshake is its own affair.
_GROUP = "ssl_negotiated_key_exchange_group"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server_leaf(authority: Authority) -> Leaf:
    return authority.issue("localhost", "other.test", "127.0.0.1")


@pytest.fixture(scope="module")
def client_leaf(authority: Authority) -> Leaf:
    return authority.issue("client.test", common_name="client")


async def _serve(network: Network, methods: Any, leaf: Leaf, **credentials: Any) -> int:
    server = network.new_server(methods)
    made = network.server_side.ssl_server_credentials([(leaf.key, leaf.chain)], **credentials)
    port: int = server.add_secure_port("127.0.0.1:0", made)
    await server.start()
    return port


async def test_tls_call_succeeds(network: Network, authority: Authority, server_leaf: Leaf) -> None:
    seen: list[dict[str, Any]] = []

    async def look(request: bytes, context: Any) -> bytes:
        assert context.peer_identities() is None
        seen.append(dict(context.auth_context()))
        return request

    def look_plainly(request: bytes, context: Any) -> bytes:
        assert context.peer_identities() is None
        seen.append(dict(context.auth_context()))
        return request

    port = await _serve(network, {"Call": unary(look), "Plain": unary(look_plainly)}, server_leaf)
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    for name in ("Call", "Plain"):
        assert b"x" == await within(stub.unary(name)(b"x"))
        context = seen.pop()
        assert context.pop(_GROUP)
        assert {**_PROTECTED, "ssl_requested_server_name": [b"localhost"]} == context


async def test_tls_streams_large_messages(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    async def copies(request: bytes, context: Any) -> None:
        for _ in range(4):
            await context.write(request)

    port = await _serve(network, {"Call": responses(copies)}, server_leaf)
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    message = bytes(1024 * 1024)
    assert [message] * 4 == [response async for response in stub.responses()(message)]


async def test_certificate_of_an_unknown_authority_is_refused(
    network: Network, server_leaf: Leaf
) -> None:
    port = await _serve(network, {"Call": unary(echo)}, server_leaf)
    credentials = grpc.ssl_channel_credentials(Authority().certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(stub.unary()(b"x"))).code()


async def test_certificate_of_another_name_is_refused(
    network: Network, authority: Authority
) -> None:
    leaf = authority.issue("elsewhere.test")
    port = await _serve(network, {"Call": unary(echo)}, leaf)
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(stub.unary()(b"x"))).code()


async def test_name_that_is_checked_can_be_overridden(
    network: Network, authority: Authority
) -> None:
    leaf = authority.issue("elsewhere.test")
    port = await _serve(network, {"Call": unary(echo)}, leaf)
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    options = [("grpc.ssl_target_name_override", "elsewhere.test")]
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials, options=options))
    assert b"x" == await within(stub.unary()(b"x"))


async def test_client_certificate_names_the_peer(
    network: Network, authority: Authority, server_leaf: Leaf, client_leaf: Leaf
) -> None:
    seen: dict[str, Any] = {}

    async def look(request: bytes, context: Any) -> bytes:
        seen["key"] = context.peer_identity_key()
        seen["identities"] = list(context.peer_identities() or ())
        seen["context"] = dict(context.auth_context())
        return request

    port = await _serve(
        network,
        {"Call": unary(look)},
        server_leaf,
        root_certificates=authority.certificate,
        require_client_auth=True,
    )
    credentials = grpc.ssl_channel_credentials(
        authority.certificate, client_leaf.key, client_leaf.chain
    )
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    assert b"x" == await within(stub.unary()(b"x"))
    assert ("x509_subject_alternative_name", [b"client.test"]) == (
        seen["key"],
        seen["identities"],
    )
    assert [b"client"] == list(seen["context"]["x509_common_name"])
    assert _PROTECTED.items() <= seen["context"].items()
    assert client_leaf.chain.startswith(seen["context"]["x509_pem_cert"][0].strip())


async def test_names_that_a_certificate_lacks(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    seen: list[dict[str, Any]] = []

    async def look(request: bytes, context: Any) -> bytes:
        seen.append(dict(context.auth_context()))
        return request

    port = await _serve(
        network,
        {"Call": unary(look)},
        server_leaf,
        root_certificates=authority.certificate,
        require_client_auth=True,
    )
    handshake = {*_PROTECTED, _GROUP, "ssl_requested_server_name", "x509_pem_cert"}
    for leaf, expected in (
        (
            authority.issue("a.test", "b.test", common_name=None),
            {
                "x509_subject": [b""],
                "x509_common_name": [b""],
                "x509_subject_alternative_name": [b"a.test", b"b.test"],
                "peer_dns": [b"a.test", b"b.test"],
            },
        ),
        (
            authority.issue(common_name=' a, "b" <c>; \u00e9\\+=#'),
            {
                "x509_subject": [rb"CN=\ a\, \"b\" \<c\>\; \C3\A9\\\+=#"],
                "x509_common_name": [' a, "b" <c>; \u00e9\\+=#'.encode()],
            },
        ),
        (
            authority.issue("a.test", "spiffe://mesh/a", "10.0.0.1", "::1", common_name="a"),
            {
                "x509_subject": [b"CN=a"],
                "x509_common_name": [b"a"],
                "x509_subject_alternative_name": [
                    b"a.test",
                    b"spiffe://mesh/a",
                    b"10.0.0.1",
                    b"::1",
                ],
                "peer_dns": [b"a.test"],
                "peer_uri": [b"spiffe://mesh/a"],
                "peer_ip": [b"10.0.0.1", b"::1"],
                "peer_spiffe_id": [b"spiffe://mesh/a"],
            },
        ),
        (
            authority.issue("http://a.test/b", common_name="a"),
            {
                "x509_subject": [b"CN=a"],
                "x509_common_name": [b"a"],
                "x509_subject_alternative_name": [b"http://a.test/b"],
                "peer_uri": [b"http://a.test/b"],
            },
        ),
    ):
        credentials = grpc.ssl_channel_credentials(authority.certificate, leaf.key, leaf.chain)
        stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
        assert b"x" == await within(stub.unary()(b"x"))
        context = seen.pop()
        assert expected == {name: context[name] for name in context if name not in handshake}


async def test_missing_client_certificate_is_refused(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    port = await _serve(
        network,
        {"Call": unary(echo)},
        server_leaf,
        root_certificates=authority.certificate,
        require_client_auth=True,
    )
    credentials = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", credentials))
    assert grpc.StatusCode.UNAVAILABLE is (await failure(stub.unary()(b"x"))).code()


class _Token(grpc.AuthMetadataPlugin):
    def __call__(self, context: grpc.AuthMetadataContext, callback: Callable[..., None]) -> None:
        callback((("token", f"for {context.method_name}"),), None)


class _BrokenToken(grpc.AuthMetadataPlugin):
    def __call__(self, context: grpc.AuthMetadataContext, callback: Callable[..., None]) -> None:
        callback((), ValueError("no token today"))


async def _tell_token(_request: bytes, context: Any) -> bytes:
    metadata = dict(context.invocation_metadata())
    return str(metadata.get("token", metadata.get("authorization"))).encode()


async def test_credentials_of_calls_become_metadata(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    port = await _serve(network, {"Call": unary(_tell_token)}, server_leaf)
    tls = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", tls))
    token = grpc.metadata_call_credentials(_Token())
    assert b"for Call" == await within(stub.unary()(b"", credentials=token))
    access = grpc.access_token_call_credentials("secret")
    assert b"Bearer secret" == await within(stub.unary()(b"", credentials=access))
    assert b"None" == await within(stub.unary()(b""))


async def test_credentials_of_the_channel_go_with_every_call(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    port = await _serve(network, {"Call": unary(_tell_token)}, server_leaf)
    composed = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.certificate),
        grpc.metadata_call_credentials(_Token()),
    )
    stub = Stub(network.secure_channel(f"localhost:{port}", composed))
    assert b"for Call" == await within(stub.unary()(b""))


async def test_plugin_that_fails_fails_the_call(
    network: Network, authority: Authority, server_leaf: Leaf
) -> None:
    port = await _serve(network, {"Call": unary(_tell_token)}, server_leaf)
    tls = grpc.ssl_channel_credentials(authority.certificate)
    stub = Stub(network.secure_channel(f"localhost:{port}", tls))
    broken = grpc.metadata_call_credentials(_BrokenToken())
    error = await failure(stub.unary()(b"", credentials=broken))
    assert "no token today" in (error.details() or "")


async def test_insecure_channels_carry_no_credentials(network: Network) -> None:
    stub = await network.serve({"Call": unary(_tell_token)})
    token = grpc.metadata_call_credentials(_Token())
    with pytest.raises(grpc.aio.UsageError, match="secure channels"):
        stub.unary()(b"", credentials=token)


async def test_unreadable_certificates_are_refused(network: Network) -> None:
    server = network.new_server({f"{SERVICE}": unary(echo)})
    credentials = network.server_side.ssl_server_credentials([(b"no key", b"no certificate")])
    with pytest.raises((RuntimeError, ValueError)):
        server.add_secure_port("127.0.0.1:0", credentials)
