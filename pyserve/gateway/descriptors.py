"""Which protobuf files reflection can show, gathered from all deployments."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio as reflection_aio

from pyserve.wire.rayserve import api_pb2

_LOGGER = logging.getLogger(__name__)

REFLECTION_V1ALPHA = "grpc.reflection.v1alpha"
REFLECTION_V1 = "grpc.reflection.v1"

# With its content, by which two files of one name are compared.
_File = tuple[descriptor_pb2.FileDescriptorProto, bytes]


def build_pools(sources: Iterable[Iterable[bytes]]) -> list[descriptor_pool.DescriptorPool]:
    """Return pools of the files of all sources and of the ingress's own services, its own first.

    A pool has one file of a name and one definition of a symbol, while two applications may have
    an ``api.proto`` each. A source that contradicts the pools before it gets one of its own.

    Args:
        sources: of each deployment its serialized ``FileDescriptorProto``, dependencies before
            dependents.
    """
    pools = [_Pool()]
    pools[0].add([_parsed(each) for each in own_files()])
    for source in sources:
        files = [_parsed(each) for each in source]
        if not any(each.add(files) for each in pools):
            pools.append(_Pool())
            if not pools[-1].add(files):
                _LOGGER.warning(
                    "reflection cannot show all of %s: %s",
                    ", ".join(file.name for file, _ in files),
                    pools[-1].problem,
                )
    return [each.pool for each in pools]


def reflection_servicer(
    services: Iterable[str], sources: Iterable[Iterable[bytes]]
) -> reflection_aio.ReflectionServicer:
    """Return what answers reflection.

    Args:
        services: The names it lists, except those that no file defines, as of plain classes.
        sources: As for ``build_pools``; the ingress's own services are there as well.
    """
    pools = _Pools([_Symbols(each) for each in build_pools(sources)])
    # Clients ask for the file of each service in the list, and some give up at one without.
    described = [service for service in services if pools.defines(service)]
    return reflection_aio.ReflectionServicer(described, pool=pools)


class _Pool:
    """A pool, and the contents of its files; ``problem`` is why the last source does not fit."""

    def __init__(self) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self.problem = ""
        self._contents: dict[str, bytes] = {}

    def add(self, files: Sequence[_File]) -> bool:
        """Add the files of one source; False if they contradict each other or what is here.

        None is added where another file has one of their names: the others would refer to it.
        """
        if any(self._contents.get(file.name, content) != content for file, content in files):
            self.problem = "another deployment has files of these names"
            return False
        taken = [self._take(file, content) for file, content in files]
        return all(taken)

    def _take(self, file: descriptor_pb2.FileDescriptorProto, content: bytes) -> bool:
        known = self._contents.setdefault(file.name, content)
        if known is not content:
            self.problem = self.problem if known == content else f"two files are named {file.name}"
            return known == content
        try:
            self.pool.AddSerializedFile(content)
            self.pool.FindFileByName(file.name)
        except (TypeError, KeyError) as error:
            self.problem = str(error)
            return False
        return True


class _Pools:
    """Pools that are asked one after the other, as far as a servicer of reflection asks."""

    def __init__(self, pools: Sequence[_Symbols]) -> None:
        self._pools = pools

    def defines(self, symbol: str) -> bool:
        """Tell whether a file defines ``symbol``, a full name."""
        try:
            self.FindFileContainingSymbol(symbol)
        except KeyError:
            return False
        return True

    def FindFileByName(self, name: str) -> FileDescriptor:
        """Return the first file of a name; KeyError if there is none."""
        found: FileDescriptor = self._first("FindFileByName", name)
        return found

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        """Return the file that defines a full name; KeyError if none does."""
        found: FileDescriptor = self._first("FindFileContainingSymbol", symbol)
        return found

    def FindMessageTypeByName(self, name: str) -> Descriptor:
        """Return the message of a full name; KeyError if there is none."""
        found: Descriptor = self._first("FindMessageTypeByName", name)
        return found

    def FindExtensionByNumber(self, message: Descriptor, number: int) -> FieldDescriptor:
        """Return an extension of a message, from the pool of that; KeyError if there is none."""
        return message.file.pool.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Descriptor) -> list[FieldDescriptor]:
        """Return the extensions of a message in the pool of that."""
        return message.file.pool.FindAllExtensions(message)

    def _first(self, method: str, name: str) -> Any:
        for each in self._pools:
            with contextlib.suppress(KeyError):
                return getattr(each, method)(name)
        raise KeyError(name)


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


def _parsed(serialized: bytes) -> _File:
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    return file, file.SerializeToString(deterministic=True)


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
