"""Objects that may be passed as an argument and are resolved before the call is sent.

Only top-level arguments are resolved. A response inside a list cannot travel, and raises an error;
an ``ObjectRef`` inside a list travels as a reference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.api.handles.leases import Lease


class Input:
    """An argument whose value is not here, or not yet.

    A plain base class: every argument of every call is tested for it.
    """

    __slots__ = ()

    async def arrive(self) -> None:
        """Wait until the value is there or elsewhere; cancelling the wait changes nothing.

        Raises:
            Exception: There will be no value; the original error of the call that should make it.
        """
        raise NotImplementedError

    def lease(self) -> Lease | None:
        """Return who holds the value; ``None``: it is here, see ``value``. After ``arrive``."""
        raise NotImplementedError

    def value(self) -> object:
        """Return a value that is here."""
        raise NotImplementedError


async def arrived(inputs: Sequence[Input]) -> None:
    """Wait for all inputs; the first that fails ends the wait with its error."""
    if len(inputs) == 1:
        await inputs[0].arrive()
        return
    # A task group would wrap the error. The other inputs are not needed any more.
    waits = [asyncio.ensure_future(each.arrive()) for each in inputs]
    try:
        await asyncio.gather(*waits)
    finally:
        for wait in waits:
            wait.cancel()
