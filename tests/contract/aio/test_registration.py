"""How handlers get to a server: generated code, generic handlers, serializers."""

import asyncio
from typing import Any

import grpc
from google.protobuf import wrappers_pb2

from tests.contract.aio.sides import SERVICE, Network, Stub, echo, failure, unary, within


async def test_generic_handlers_of_older_generated_code_serve(network: Network) -> None:
    server = network.server_side.server()
    handler = grpc.method_handlers_generic_handler(SERVICE, {"Call": unary(echo)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stub = Stub(network.channel(f"127.0.0.1:{port}"))
    assert b"x" == await within(stub.unary()(b"x"))
    assert grpc.StatusCode.UNIMPLEMENTED is (await failure(stub.unary("Other")(b"x"))).code()
    await within(server.stop(None))


class Anything(grpc.GenericRpcHandler):
    """Serves every path under a prefix, of any kind that the metadata asks for."""

    def service(self, handler_call_details: Any) -> Any:
        if not handler_call_details.method.startswith("/any."):
            return None
        kind = dict(handler_call_details.invocation_metadata).get("kind")

        async def tell(_request: Any, _context: Any) -> bytes:
            return str(handler_call_details.method).encode()

        async def count(request_iterator: Any, _context: Any) -> bytes:
            return b"%d" % len([request async for request in request_iterator])

        async def split(request: bytes, _context: Any) -> Any:
            for value in request:
                yield bytes([value])

        if kind == "requests":
            return grpc.stream_unary_rpc_method_handler(count)
        if kind == "responses":
            return grpc.unary_stream_rpc_method_handler(split)
        if kind == "plain":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request * 2)
        return grpc.unary_unary_rpc_method_handler(tell)


async def test_generic_handlers_decide_per_call(network: Network) -> None:
    server = network.new_server({"Call": unary(echo)})
    server.add_generic_rpc_handlers((Anything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = network.channel(f"127.0.0.1:{port}")
    assert b"/any.Service/One" == await within(channel.unary_unary("/any.Service/One")(b""))
    assert b"xx" == await within(
        channel.unary_unary("/any.Service/Two")(b"x", metadata=(("kind", "plain"),))
    )
    assert b"3" == await within(
        channel.stream_unary("/any.Service/Three")(
            iter([b"a", b"b", b"c"]), metadata=(("kind", "requests"),)
        )
    )
    call = channel.unary_stream("/any.Service/Four")(b"ab", metadata=(("kind", "responses"),))
    assert [b"a", b"b"] == [response async for response in call]
    assert b"x" == await within(Stub(channel).unary()(b"x"))
    error = await failure(channel.unary_unary("/other.Service/One")(b""))
    assert grpc.StatusCode.UNIMPLEMENTED is error.code()


async def test_registered_methods_win_over_generic_ones(network: Network) -> None:
    async def generic(_request: bytes, _context: Any) -> bytes:
        return b"generic"

    async def registered(_request: bytes, _context: Any) -> bytes:
        return b"registered"

    server = network.new_server({"Call": unary(registered)})
    handler = grpc.method_handlers_generic_handler(
        SERVICE, {"Call": unary(generic), "Other": unary(generic)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stub = Stub(network.channel(f"127.0.0.1:{port}"))
    assert b"registered" == await within(stub.unary()(b""))
    assert b"generic" == await within(stub.unary("Other")(b""))


async def test_messages_are_serialized_by_the_methods_functions(network: Network) -> None:
    string = wrappers_pb2.StringValue

    async def greet(request: wrappers_pb2.StringValue, _context: Any) -> wrappers_pb2.StringValue:
        return string(value=f"hello {request.value}")

    handler = grpc.unary_unary_rpc_method_handler(
        greet, string.FromString, string.SerializeToString
    )
    _, address = await network.start({"Call": handler})
    channel = network.channel(address)
    call = channel.unary_unary(f"/{SERVICE}/Call", string.SerializeToString, string.FromString)
    assert string(value="hello you") == await within(call(string(value="you")))


async def test_methods_of_objects_and_partials_are_handlers(network: Network) -> None:
    import functools

    class Servicer:
        async def call(self, request: bytes, _context: Any) -> bytes:
            return request + b"!"

    async def suffixed(suffix: bytes, request: bytes, _context: Any) -> bytes:
        return request + suffix

    stub = await network.serve(
        {"Call": unary(Servicer().call), "Partial": unary(functools.partial(suffixed, b"?"))}
    )
    assert b"x!" == await within(stub.unary()(b"x"))
    assert b"x?" == await within(stub.unary("Partial")(b"x"))


async def test_several_servers_share_a_loop(network: Network) -> None:
    async def one(_request: bytes, _context: Any) -> bytes:
        return b"one"

    async def two(_request: bytes, _context: Any) -> bytes:
        return b"two"

    _, first = await network.start({"Call": unary(one)})
    server, second = await network.start({"Call": unary(two)})
    stubs = [Stub(network.channel(first)), Stub(network.channel(second))]
    assert [b"one", b"two"] == [await within(stub.unary()(b"")) for stub in stubs]
    await within(server.stop(None))
    assert b"one" == await within(stubs[0].unary()(b""))


async def test_handlers_may_call_other_services(network: Network) -> None:
    backend = await network.serve({"Call": unary(echo)})

    async def forward(request: bytes, _context: Any) -> bytes:
        answers = await asyncio.gather(*[backend.unary()(request) for _ in range(3)])
        return b"".join(answers)

    front = await network.serve({"Call": unary(forward)})
    assert b"xxx" == await within(front.unary()(b"x"))
