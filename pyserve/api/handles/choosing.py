"""Calls that go to replicas of the caller's choice: to one that was reserved, and to all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic

from pyserve.api.handles.options import checked_wait
from pyserve.api.handles.outgoing import check_may_block
from pyserve.api.handles.typing import Result_co
from pyserve.errors import UsageError

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Reservation
    from pyserve.api.handles.response import DeploymentResponse
    from pyserve.types import DeploymentKey, ReplicaId


class ReplicaSelection:
    """A place at one replica, for the call that ``handle.dispatch`` makes.

    Attributes:
        replica_id: Who was chosen.
        node_id: Where it runs.
    """

    def __init__(self, key: DeploymentKey, reservation: Reservation) -> None:
        self.replica_id = reservation.replica_id
        self.node_id = reservation.node
        self._key = key
        self._reservation: Reservation | None = reservation

    def take(self, key: DeploymentKey) -> Reservation:
        """Return the place, once.

        Raises:
            UsageError: It was used already, or belongs to another deployment.
        """
        reservation = self._reservation
        if key != self._key:
            raise UsageError(f"the selection is for {self._key}, so {key} cannot be called with it")
        if reservation is None:
            raise UsageError(
                f"the place at {self.replica_id} has been used or given back; choose one for "
                f"each call, and call inside of `async with handle.choose_replica()`"
            )
        self._reservation = None
        return reservation

    def release(self) -> None:
        """Give the place back, unless a call has taken it. Idempotent."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def __repr__(self) -> str:
        return f"<ReplicaSelection of {self.replica_id}>"


class BroadcastResponse(Generic[Result_co]):
    """The results of ``handle.broadcast(...)``, one for each replica.

    Attributes:
        responses: By replica; each is awaited, cancelled or passed on like any other.
    """

    def __init__(self, responses: Mapping[ReplicaId, DeploymentResponse[Result_co]]) -> None:
        self.responses = responses

    def __await__(self) -> Generator[Any, None, list[Result_co]]:
        return self._gathered().__await__()

    def result(self, timeout_s: float | None = None) -> list[Result_co]:
        """Block until all have answered, and return the results; see ``DeploymentResponse``."""
        check_may_block()
        timeout_s = checked_wait("result: timeout_s", timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return [
            each.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for each in self.responses.values()
        ]

    def cancel(self) -> None:
        """Cancel every call that has not ended."""
        for each in self.responses.values():
            each.cancel()

    async def _gathered(self) -> list[Result_co]:
        return list(await asyncio.gather(*self.responses.values()))
