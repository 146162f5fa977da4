"""Whether this process can make the memory that large bodies pass through inside a machine."""

from __future__ import annotations

import logging
import os
import sys

from pyserve.config import NodeSettings

_LOGGER = logging.getLogger(__name__)


def shared_memory_bytes(node: NodeSettings) -> int:
    """Return how much a connection to a replica may share, and warn where the system forbids it.

    Bodies go over sockets then: they arrive as well, for more processor time.
    """
    if node.shared_memory_bytes and (error := _refusal()) is not None:
        _LOGGER.warning(
            "large bodies go over sockets, because this process may not make memory to share "
            "(memfd_create: %s); PYSERVE_SHARED_MEMORY_MB=0 says that this is meant",
            error.strerror,
        )
    return node.shared_memory_bytes


def _refusal() -> OSError | None:
    if sys.platform != "linux":
        return None  # It is not made elsewhere.
    try:
        os.close(os.memfd_create("pyserve-probe"))
    except OSError as error:
        return error
    return None
