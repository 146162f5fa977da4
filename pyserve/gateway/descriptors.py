"""Which protobuf files reflection can show, gathered from all deployments."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from pyserve.wire.rayserve import api_pb2

_LOGGER = logging.getLogger(__name__)

REFLECTION_V1ALPHA = "grpc.reflection.v1alpha"
REFLECTION_V1 = "grpc.reflection.v1"


def build_pool(file_descriptors: Iterable[bytes]) -> descriptor_pool.DescriptorPool:
    """Return a pool of the given files and of the ingress's own services.

    Args:
        file_descriptors: serialized ``FileDescriptorProto``, dependencies before dependents.
            Two files of one name and different content cannot both be shown: the first one is.
    """
    pool = descriptor_pool.DescriptorPool()
    known: dict[str, bytes] = {}
    for serialized in (*own_files(), *file_descriptors):
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        content = file.SerializeToString(deterministic=True)
        if file.name not in known:
            known[file.name] = content
            _add(pool, file)
        elif known[file.name] != content:
            _LOGGER.warning("two different files are named %s; one is shown", file.name)
    return pool


def reflection_servicer(
    services: Iterable[str], file_descriptors: Iterable[bytes]
) -> reflection_aio.ReflectionServicer:
    """Return what answers reflection.

    Args:
        services: The names it lists.
        file_descriptors: As for ``build_pool``; the ingress's own services are there as well.
    """
    return reflection_aio.ReflectionServicer(services, pool=_Symbols(build_pool(file_descriptors)))


class _Symbols:
    """A pool that finds methods too: protobuf's own knows the other symbols only."""

    def __init__(self, pool: descriptor_pool.DescriptorPool) -> None:
        self._pool = pool

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        """Return the file that defines ``symbol``, a full name; KeyError where none does."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindMethodByName(symbol).containing_service.file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def _add(pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        # One service whose files contradict others must not hide the rest.
        _LOGGER.warning("reflection cannot show %s: %s", file.name, error)


@functools.cache
def own_files() -> tuple[bytes, ...]:
    """Return the serialized files of the services that the ingress answers itself."""
    v1alpha = descriptor_pb2.FileDescriptorProto.FromString(reflection_pb2.DESCRIPTOR.serialized_pb)
    return (
        health_pb2.DESCRIPTOR.serialized_pb,
        api_pb2.DESCRIPTOR.serialized_pb,
        v1alpha.SerializeToString(),
        _as_v1(v1alpha).SerializeToString(),
    )


def _as_v1(
    v1alpha: descriptor_pb2.FileDescriptorProto,
) -> descriptor_pb2.FileDescriptorProto:
    """Return the file of reflection v1, which is v1alpha under another package name."""
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(v1alpha)
    file.name = "grpc/reflection/v1/reflection.proto"
    file.package = REFLECTION_V1
    file.ClearField("options")
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = _renamed(field.type_name)
    for service in file.service:
        for method in service.method:
            method.input_type = _renamed(method.input_type)
            method.output_type = _renamed(method.output_type)
    return file


def _renamed(type_name: str) -> str:
    return type_name.replace(f".{REFLECTION_V1ALPHA}.", f".{REFLECTION_V1}.")
