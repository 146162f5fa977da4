"""The generated modules that this process has imported, and services described by them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor, ServiceDescriptor

# Of pyserve and of what it imports: no message of these files is in a user's Any.
_OWN = ("pyserve/", "grpc/", "opentelemetry/", "google/protobuf/descriptor.proto")
_SERVICES, _MESSAGES = "_pb2_grpc", "_pb2"  # How the modules of a file end.
_BYTES_MAX = 1 << 20  # A client library of a cloud may bring hundreds of files.


def find_service(name: str) -> ServiceDescriptor:
    """Return the description of a service by its full name.

    Where all messages of a service are in other files, its ``_pb2_grpc`` module imports theirs, and
    nothing imports the ``_pb2`` module that has the description: it is imported here.

    Raises:
        KeyError: No module that has been imported describes it.
    """
    pool = descriptor_pool.Default()
    with contextlib.suppress(KeyError):
        return pool.FindServiceByName(name)
    for module in list(sys.modules):
        messages = module.removesuffix(_SERVICES) + _MESSAGES
        if module.endswith(_SERVICES) and messages not in sys.modules:
            with contextlib.suppress(Exception):  # Whatever it is, another one may have it.
                importlib.import_module(messages)
    return pool.FindServiceByName(name)


def loaded_files() -> list[FileDescriptor]:
    """Return the ``.proto`` files of imported modules, by name, up to a mebibyte altogether.

    They describe what the files of services do not: messages in a ``google.protobuf.Any``, details
    of errors, and extensions, which no import of a service's own file has to lead to.
    """
    pool = descriptor_pool.Default()
    found: dict[str, FileDescriptor] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__dict__", {}).get("DESCRIPTOR")
        if isinstance(file, FileDescriptor) and file.pool is pool:
            found[file.name] = file
    size = 0
    files = []
    for name in sorted(found):
        if name.startswith(_OWN):
            continue
        size += len(found[name].serialized_pb)
        if size > _BYTES_MAX:
            break
        files.append(found[name])
    return files


# Describes services to the native server, so that clients of other protocols can call them.


def describing_files(services: Iterable[str]) -> list[bytes]:
    """Return the files that describe ``services`` and what their messages may have in them.

    They are serialized, dependencies first.

    Args:
        services: Full names. Services whose generated module has not been imported are left out:
            their clients can send protobuf, which needs no description, but not JSON.
    """
    found: dict[str, bytes] = {}
    for name in services:
        try:
            service = find_service(name)
        except KeyError:
            continue
        _add(service.file, found)
    for file in loaded_files() if found else ():
        _add(file, found)
    return list(found.values())


def _add(file: FileDescriptor, found: dict[str, bytes]) -> None:
    if file.name not in found:
        for dependency in file.dependencies:
            _add(dependency, found)
        found[file.name] = file.serialized_pb
