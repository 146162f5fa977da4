"""The protocol's ``.proto`` under the package name that its clients use, and what servers say.

It does not need numpy, so processes that only forward calls can import it.
"""

from __future__ import annotations

import functools

from google.protobuf import descriptor_pb2

from pyserve.inference import open_inference_pb2

SERVICE = "inference.GRPCInferenceService"
# What every server of a mesh says of itself.
SERVER_NAME = "pyserve"
EXTENSIONS = ("binary_tensor_data",)
_OWN_PACKAGE = open_inference_pb2.DESCRIPTOR.package


@functools.cache
def file_descriptor() -> bytes:
    """Return the serialized file, as reflection and transcoding show it."""
    file = descriptor_pb2.FileDescriptorProto()
    open_inference_pb2.DESCRIPTOR.CopyToProto(file)
    file.package = "inference"
    for message in file.message_type:
        _rename_fields(message)
    for service in file.service:
        for method in service.method:
            method.input_type = _renamed(method.input_type)
            method.output_type = _renamed(method.output_type)
    return file.SerializeToString()


def _rename_fields(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.type_name:
            field.type_name = _renamed(field.type_name)
    for nested in message.nested_type:
        _rename_fields(nested)


def _renamed(name: str) -> str:
    return name.replace(f".{_OWN_PACKAGE}.", ".inference.", 1)
