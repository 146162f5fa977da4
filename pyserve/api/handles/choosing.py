"""Calls that go to replicas of the caller's choice: to one that was reserved, and to all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Generic

from pyserve.api.handles.options import checked_wait
from pyserve.api.handles.outgoing import check_may_block
from pyserve.api.handles.typing import Result_co
from pyserve.errors import RequestTimeout, UsageError
from pyserve.types import ReplicaId

if TYPE_CHECKING:
    from pyserve.api.handles.calls import Reservation
    from pyserve.api.handles.response import DeploymentResponse
    from pyserve.types import DeploymentKey


class ReplicaSelection:
    """A place at one replica, for the call that ``handle.dispatch`` makes.

    Attributes:
        replica_id: Who was chosen.
        node_id: Where it runs.
        node_ip: The address of that machine in the mesh; "" when the replica has gone since.
        availability_zone: The zone that it says it is in, or "".
    """

    def __init__(
        self, key: DeploymentKey, reservation: Reservation, place: tuple[str, str]
    ) -> None:
        self.replica_id = ReplicaId(reservation.replica_id)
        self.node_id = reservation.node
        self.node_ip, self.availability_zone = place
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
        return self.results_async().__await__()

    def result(self, timeout_s: float | None = None) -> list[Result_co]:
        """Block until all have answered, and return the results; see ``results``."""
        return self.results(timeout_s=timeout_s)

    def results(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Block until all have answered, and return their results in the order of ``responses``.

        Args:
            timeout_s: How many seconds to wait for all of them together; the calls go on after
                them. ``None``: as long as it takes; 0: only answers that are here already.
            return_exceptions: Return the exception of a failed replica in place of its result.

        Raises:
            UsageError: A loop runs in this thread: write ``await`` there.
            OptionError: ``timeout_s`` is no number of seconds.
            RequestTimeout: Not all have answered in time.
            Exception: What the first failing replica has raised, without ``return_exceptions``.
        """
        check_may_block()
        timeout_s = checked_wait("results: timeout_s", timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        results: list[Any] = []
        for each in self.responses.values():
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                results.append(each.result(left_s))
            except Exception as error:
                # A call that has not ended cannot have failed: this is the timeout.
                if not return_exceptions or not each.done():
                    raise
                results.append(error)
        return results

    async def results_async(
        self, *, timeout_s: float | None = None, return_exceptions: bool = False
    ) -> list[Any]:
        """Do what ``results`` does, on a loop. Cancelling it cancels the calls."""
        timeout_s = checked_wait("results_async: timeout_s", timeout_s)
        calls = tuple(self.responses.values())
        if all(each.done() for each in calls):
            timeout_s = None
        try:
            async with asyncio.timeout(timeout_s) as limit:
                waiting = [_result_of(each) for each in calls]
                return await asyncio.gather(*waiting, return_exceptions=return_exceptions)
        except asyncio.CancelledError:
            self.cancel()
            raise
        except TimeoutError:
            if not limit.expired():  # It is a replica's.
                raise
            pending = sum(not each.done() for each in calls)
            raise RequestTimeout(
                f"{pending} of {len(calls)} replicas have not answered within {timeout_s:g} s; "
                f"their calls go on until .cancel()"
            ) from None

    def cancel(self) -> None:
        """Cancel every call that has not ended."""
        for each in self.responses.values():
            each.cancel()


async def _result_of(response: DeploymentResponse[Any]) -> Any:
    await response.arrive()  # Leaves the call alone when the time is over.
    return await response
