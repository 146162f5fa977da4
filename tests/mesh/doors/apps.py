"""The service of ``things.proto``, which says back what it was told."""

from collections.abc import AsyncIterator

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2  # type: ignore[import-untyped]  # it has no stubs

import pyserve
from pyserve.aio import ServicerContext
from tests.mesh.doors import things_pb2, things_pb2_grpc


@pyserve.deployment
class Things(things_pb2_grpc.ThingsServicer):
    async def Echo(self, request: things_pb2.Thing, context: ServicerContext) -> things_pb2.Thing:
        metadata = dict(context.invocation_metadata())
        if "x-head" in metadata:
            await context.send_initial_metadata((("x-head", metadata["x-head"]),))
            context.set_trailing_metadata((("x-end-bin", b"\x00\x01"),))
        if request.name == "fail":
            detail = any_pb2.Any()
            detail.Pack(things_pb2.Filter(tag_name="t"))
            status = status_pb2.Status(code=9, message="not now: ☃", details=[detail])
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message)
        return request

    async def Get(
        self, request: things_pb2.GetRequest, context: ServicerContext
    ) -> things_pb2.Thing:
        del context
        if request.name == "nothing":
            raise LookupError(request.name)
        return things_pb2.Thing(
            name=request.name, word=request.filter.tag_name, tags=map(str, request.numbers)
        )

    async def List(
        self, request: things_pb2.ListRequest, context: ServicerContext
    ) -> AsyncIterator[things_pb2.Thing]:
        for number in range(request.count):
            yield things_pb2.Thing(small_count=number, data=bytes(request.size_bytes))
        if request.fail_code:
            code = next(code for code in grpc.StatusCode if code.value[0] == request.fail_code)
            await context.abort(code, "enough")

    async def Collect(
        self, requests: AsyncIterator[things_pb2.Thing], context: ServicerContext
    ) -> things_pb2.ListRequest:
        del context
        names = [request.name async for request in requests]
        return things_pb2.ListRequest(count=len(names), size_bytes=len("".join(names)))

    async def Chat(
        self, requests: AsyncIterator[things_pb2.Thing], context: ServicerContext
    ) -> AsyncIterator[things_pb2.Thing]:
        del context
        async for request in requests:
            yield things_pb2.Thing(name=request.name.upper())


app = Things.bind()
