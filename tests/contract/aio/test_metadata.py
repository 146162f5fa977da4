"""Metadata in both directions."""

import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.contract.aio.sides import (
    PYSERVE,
    Network,
    Side,
    Stub,
    collect,
    echo,
    responses,
    unary,
    within,
)

SENT = (
    ("plain", "value"),
    ("twice", "one"),
    ("twice", "two"),
    ("with-bin", b"\x00\xff\x80"),
    ("empty", ""),
    ("spaced", "a b  c"),
)


def _known(metadata: Any) -> Any:
    return tuple((key, value) for key, value in metadata if key in dict(SENT))


async def test_request_metadata_reaches_the_handler(network: Network) -> None:
    seen: list[Any] = []

    async def look(request: bytes, context: Any) -> bytes:
        seen.extend(context.invocation_metadata())
        return request

    stub = await network.serve({"Call": unary(look)})
    await within(stub.unary()(b"", metadata=SENT))
    assert sorted(SENT, key=str) == sorted(_known(seen), key=str)
    assert "user-agent" in dict(seen)
    assert all(not key.startswith(":") for key, _ in seen)


async def test_metadata_may_be_the_mapping_of_grpc_aio(network: Network) -> None:
    async def look(_request: bytes, context: Any) -> bytes:
        return str(dict(context.invocation_metadata())["plain"]).encode()

    stub = await network.serve({"Call": unary(look)})
    metadata = grpc.aio.Metadata(("plain", "mapped"))
    assert b"mapped" == await within(stub.unary()(b"", metadata=metadata))


async def test_received_pairs_have_names(network: Network) -> None:
    async def look(_request: bytes, context: Any) -> bytes:
        return b",".join(
            pair.value.encode() for pair in context.invocation_metadata() if pair.key == "plain"
        )

    stub = await network.serve({"Call": unary(look)})
    assert b"value" == await within(stub.unary()(b"", metadata=SENT))


async def test_response_metadata_reaches_the_caller(network: Network) -> None:
    async def answer(request: bytes, context: Any) -> bytes:
        await context.send_initial_metadata(SENT)
        context.set_trailing_metadata((("trailing", "end"), ("t-bin", b"\xfe")))
        assert (("trailing", "end"), ("t-bin", b"\xfe")) == tuple(context.trailing_metadata())
        return request

    stub = await network.serve({"Call": unary(answer)})
    call = stub.unary()(b"x")
    initial = await within(call.initial_metadata())
    assert sorted(SENT, key=str) == sorted(_known(initial), key=str)
    assert ["one", "two"] == list(initial.get_all("twice"))
    trailing = await within(call.trailing_metadata())
    assert ("end", b"\xfe") == (trailing["trailing"], trailing["t-bin"])
    assert b"x" == await within(call)


async def test_initial_metadata_of_a_stream_arrives_before_its_messages(network: Network) -> None:
    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("early", "yes"),))
        yield request

    stub = await network.serve({"Call": responses(answer)})
    call = stub.responses()(b"x")
    assert "yes" == (await within(call.initial_metadata()))["early"]
    assert [b"x"] == await within(collect(call))


async def test_initial_metadata_can_be_sent_once(network: Network) -> None:
    async def twice(request: bytes, context: Any) -> bytes:
        await context.send_initial_metadata((("k", "v"),))
        with pytest.raises(grpc.aio.UsageError):
            await context.send_initial_metadata((("k", "v"),))
        return request

    stub = await network.serve({"Call": unary(twice)})
    assert b"x" == await within(stub.unary()(b"x"))


async def test_sync_handlers_send_metadata_too(network: Network) -> None:
    def answer(request: bytes, context: Any) -> bytes:
        context.send_initial_metadata((("early", "yes"),))
        context.set_trailing_metadata((("late", "too"),))
        assert "user-agent" in dict(context.invocation_metadata())
        return request

    stub = await network.serve({"Call": unary(answer)})
    call = stub.unary()(b"x")
    assert b"x" == await within(call)
    assert "yes" == (await within(call.initial_metadata()))["early"]
    assert "too" == (await within(call.trailing_metadata()))["late"]


async def test_trailing_metadata_comes_beside_ok_on_streams(network: Network) -> None:
    async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        context.set_trailing_metadata((("count", "1"),))

    stub = await network.serve({"Call": responses(answer)})
    call = stub.responses()(b"x")
    assert [b"x"] == await within(collect(call))
    assert "1" == (await within(call.trailing_metadata()))["count"]


async def test_calls_without_metadata_give_empty_mappings(network: Network) -> None:
    stub = await network.serve({"Call": unary(echo)})
    call = stub.unary()(b"x")
    await within(call)
    assert isinstance(await call.trailing_metadata(), grpc.aio.Metadata)
    assert isinstance(await call.initial_metadata(), grpc.aio.Metadata)
    assert "absent" not in await call.trailing_metadata()


@pytest.mark.parametrize("metadata", [(("Upper", "v"),), (("spa ce", "v"),), (("number", 1),)])
async def test_illegal_metadata_fails_the_call_not_the_channel(
    network: Network, metadata: Any
) -> None:
    stub = await network.serve({"Call": unary(echo)})
    # Which exception it is differs between grpcio's own layers; that there is one does not.
    with pytest.raises(Exception):  # noqa: B017, PT011
        await within(stub.unary()(b"x", metadata=metadata))
    assert b"x" == await within(stub.unary()(b"x"))


async def test_trailing_metadata_is_checked_where_it_is_set(network: Network) -> None:
    async def wrong(request: bytes, context: Any) -> bytes:
        with pytest.raises(TypeError):
            context.set_trailing_metadata((("number", 1),))
        return request

    stub = await network.serve({"Call": unary(wrong)})
    assert b"x" == await within(stub.unary()(b"x"))


async def test_peer_and_auth_context_of_a_plain_connection(network: Network) -> None:
    async def look(_request: bytes, context: Any) -> bytes:
        assert context.auth_context() == {
            "transport_security_type": [b"insecure"],
            "security_level": [b"TSI_SECURITY_NONE"],
        }
        assert context.peer_identities() is None
        assert context.peer_identity_key() is None
        return str(context.peer()).encode()

    stub = await network.serve({"Call": unary(look)})
    peer = (await within(stub.unary()(b""))).decode()
    assert peer.startswith("ipv4:127.0.0.1:")
    assert peer.rpartition(":")[2].isdigit()


# A program that passes the headers of an HTTP/1.1 request on has them (RFC 9113, 8.2.2).
OF_A_CONNECTION = [
    ("connection", "keep-alive"),
    ("content-length", "3"),
    ("keep-alive", "timeout=5"),
    ("proxy-connection", "close"),
    ("te", "gzip"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "h2c"),
]


@pytest.mark.parametrize("pair", OF_A_CONNECTION, ids=lambda pair: pair[0])
async def test_headers_of_a_connection_stay_here(server_side: Side, pair: Any) -> None:
    """grpcio sends some of them, which other servers than its own refuse."""
    network = Network(server_side, PYSERVE)
    seen: dict[str, Any] = {}

    async def look(request: bytes, context: Any) -> bytes:
        seen.update(context.invocation_metadata())
        return request

    stub = await network.serve({"Call": unary(look)})
    assert b"x" == await within(stub.unary()(b"x", metadata=(pair, ("kept", "y"))))
    assert ("y", None) == (seen["kept"], seen.get(pair[0]))
    await network.close()


@pytest.mark.parametrize("pair", OF_A_CONNECTION, ids=lambda pair: pair[0])
async def test_answers_carry_no_headers_of_a_connection(client_side: Side, pair: Any) -> None:
    network = Network(PYSERVE, client_side)

    async def answer(request: bytes, context: Any) -> bytes:
        await context.send_initial_metadata((pair, ("kept", "y")))
        context.set_trailing_metadata((pair, ("kept", "z")))
        return request

    stub = await network.serve({"Call": unary(answer)})
    call = stub.unary()(b"x")
    assert b"x" == await within(call)
    for metadata, kept in [
        (await call.initial_metadata(), "y"),
        (await call.trailing_metadata(), "z"),
    ]:
        assert (kept, False) == (metadata["kept"], pair[0] in metadata)
    await network.close()


async def test_a_client_says_which_library_it_is(network: Network) -> None:
    async def tell(_request: bytes, context: Any) -> bytes:
        return str(dict(context.invocation_metadata())["user-agent"]).encode()

    _, address = await network.start({"Call": unary(tell)})
    said = [("grpc.primary_user_agent", "before"), ("grpc.secondary_user_agent", "after")]
    agent = (await within(Stub(network.channel(address, options=said)).unary()(b""))).decode()
    assert re.fullmatch(r"before grpc-python-\S+/[\d.]+ .*after", agent)
    agent = (await within(Stub(network.channel(address)).unary()(b""))).decode()
    assert agent.startswith("grpc-python-")


async def test_ipv4_clients_of_a_port_for_both_families_are_ipv4_peers(network: Network) -> None:
    async def look(_request: bytes, context: Any) -> bytes:
        return str(context.peer()).encode()

    server = network.new_server({"Call": unary(look)})
    port = server.add_insecure_port("[::]:0")
    await server.start()
    peer = await within(Stub(network.channel(f"127.0.0.1:{port}")).unary()(b""))
    assert peer.startswith(b"ipv4:127.0.0.1:")
