"""Describes services to the native server, so that clients of other protocols can call them."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.descriptor import FileDescriptor

from pyserve.aio._loaded import find_service, loaded_files


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
