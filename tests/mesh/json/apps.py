"""Services that say back what they were told, in messages of every form."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.api.httpbody_pb2 import HttpBody  # type: ignore[import-untyped]  # ships no types
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import BytesValue
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # ships no types

import pyserve
from pyserve.aio import ServicerContext
from tests.mesh.json import (
    apart_pb2,
    editions_pb2,
    editions_pb2_grpc,
    forms_pb2,
    forms_pb2_grpc,
    old_pb2,
    old_pb2_grpc,
)

FORMS = (
    "Any",
    "Duration",
    "Empty",
    "FieldMask",
    "Struct",
    "Value",
    "ListValue",
    "Timestamp",
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
)
"""The methods of ``Forms`` that take and give a message of this name, of ``google.protobuf``."""


async def _echo(self: object, request: Any, context: ServicerContext) -> Any:
    del self, context
    return request


class _Echoes(forms_pb2_grpc.FormsServicer):
    """One method for each form."""


for _form in FORMS:
    _method: Callable[..., Any] = _echo
    setattr(_Echoes, _form, _method)


@pyserve.deployment
class Forms(_Echoes):
    async def Echo(self, request: forms_pb2.Holder, context: ServicerContext) -> forms_pb2.Holder:
        del context
        return request

    async def Wire(self, request: forms_pb2.Holder, context: ServicerContext) -> forms_pb2.Bytes:
        del context
        return forms_pb2.Bytes(bytes=request.SerializeToString())

    async def Give(self, request: forms_pb2.Bytes, context: ServicerContext) -> forms_pb2.Holder:
        del context
        return forms_pb2.Holder.FromString(request.bytes)


@pyserve.deployment
class Editions(editions_pb2_grpc.EditionsServicer):
    async def Echo(
        self, request: editions_pb2.Thing, context: ServicerContext
    ) -> editions_pb2.Thing:
        del context
        return request


@pyserve.deployment
class Old(old_pb2_grpc.OldServicer):
    async def Echo(self, request: old_pb2.Thing, context: ServicerContext) -> old_pb2.Thing:
        del context
        return request

    async def Give(self, request: BytesValue, context: ServicerContext) -> old_pb2.Thing:
        del context
        return old_pb2.Thing.FromString(request.value)

    async def Fail(self, request: old_pb2.Thing, context: ServicerContext) -> old_pb2.Thing:
        del request
        detail = AnyMessage()
        detail.Pack(apart_pb2.Apart(text="why"))
        status = Status(code=9, message="no", details=[detail]).SerializeToString()
        context.set_trailing_metadata((("grpc-status-details-bin", status),))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")

    async def Store(self, request: old_pb2.File, context: ServicerContext) -> old_pb2.File:
        del context
        return request

    async def Load(
        self, request: old_pb2.File, context: ServicerContext
    ) -> AsyncIterator[HttpBody]:
        yield HttpBody(content_type="image/png", data=b"\x89PNG")
        if request.name == "broken":
            await context.abort(grpc.StatusCode.DATA_LOSS, "gone")
        yield HttpBody(data=b"\r\n")


forms = Forms.bind()
old = Old.bind()
editions = Editions.bind()
