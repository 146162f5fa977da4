"""Asks a server by reflection which file defines a symbol."""

from __future__ import annotations

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2

VERSIONS = ("v1", "v1alpha")
_TIMEOUT_S = 30.0


def files_of(channel: grpc.Channel, version: str, symbols: list[str]) -> list[str | int]:
    """Return for each of ``symbols`` the name of its file, or the code of the error."""
    reflect = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol) for symbol in symbols
    ]
    return [_found(answer) for answer in reflect(iter(requests), timeout=_TIMEOUT_S)]


def _found(answer: reflection_pb2.ServerReflectionResponse) -> str | int:
    if answer.HasField("error_response"):
        code: int = answer.error_response.error_code
        return code
    # Its dependencies follow.
    first = answer.file_descriptor_response.file_descriptor_proto[0]
    name: str = FileDescriptorProto.FromString(first).name
    return name
