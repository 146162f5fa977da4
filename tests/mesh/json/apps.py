"""Services that say back what they were told, in messages of every form."""

from collections.abc import Callable
from typing import Any

import pyserve
from pyserve.aio import ServicerContext
from tests.mesh.json import editions_pb2, editions_pb2_grpc, forms_pb2, forms_pb2_grpc

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


forms = Forms.bind()
editions = Editions.bind()
