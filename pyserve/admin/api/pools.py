"""Descriptor pools from deployments' descriptions of their services. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from pyserve.admin.context import Described

_LOGGER = logging.getLogger(__name__)


def methods_in(described: Described) -> Iterator[MethodDescriptor]:
    """Yield the methods of a deployment that have a ``.proto``."""
    pool = _pool(described.files)
    for name in described.services:
        try:
            service = pool.FindServiceByName(name)
        except KeyError:
            continue  # It is of handles, or of code that has no file.
        yield from service.methods


def _pool(files: Iterable[bytes]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for serialized in files:
        try:
            pool.AddSerializedFile(serialized)
        except TypeError as error:
            # One file that contradicts another must not hide the rest.
            _LOGGER.info("a method cannot be described: %s", error)
    return pool
