"""Where a replica's own duties run: beside user code in its loop, or in a thread of their own.

The duties are the communication with the controller, health checks, and load and routing stats; the
data plane is native and has its own threads in any case. In a thread of their own the duties go on
while user code blocks its loop, and an unanswered health check times out. ``worker.py`` uses both
variants through the same interface.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

from pyserve.bridge import LoopProbe, keep_from_forks, running_endpoint
from pyserve.config import DeploymentOptions
from pyserve.loop_thread import LoopThread
from pyserve.replica.health import HealthMeasures, HealthMonitor
from pyserve.replica.hooks import Questioner
from pyserve.replica.load_reports import Counts, LoadReporter
from pyserve.replica.membership import Membership
from pyserve.replica.routing_stats import StatsReporter
from pyserve.wire.v1 import mesh_pb2

Value = TypeVar("Value")
OnCommand = Callable[[mesh_pb2.ReplicaCommand], None]
MakeMembership = Callable[[OnCommand], Membership]


class ControlTasks(Protocol):
    """The worker's interface to the duties, used in its own loop; see also ``Membership``."""

    async def join(self) -> mesh_pb2.Assign: ...

    async def announce(self, ready: mesh_pb2.Ready) -> None: ...

    async def report_reconfigured(self, outcome: mesh_pb2.Reconfigured) -> None: ...

    async def begin_drain(self) -> None: ...

    async def fail(self, *, summary: str, traceback: str, user_code: bool) -> bool: ...

    async def leave(self) -> None: ...

    def watching(
        self, instance: object, options: DeploymentOptions, counts: Counts | None = None
    ) -> AbstractAsyncContextManager[object]:
        """Report the instance's health, load and routing stats while the context is entered.

        Args:
            instance: The user's object.
            options: Of its deployment.
            counts: Of the calls that run and have begun; ``None``: there is no load to report.
        """

    def follow(self, options: DeploymentOptions) -> None:
        """Use these options for the health checks from now on."""


class SharedControlTasks:
    """Runs in the loop of user code.

    Args:
        make_membership: Makes the ``Membership``, in the loop that it is to use.
        on_command: Called with each command, in the loop of user code.
        health: Counts the checks.
    """

    def __init__(
        self,
        make_membership: MakeMembership,
        on_command: OnCommand,
        health: HealthMeasures | None = None,
    ) -> None:
        self._health = health
        self._membership = make_membership(on_command)
        self._monitor: HealthMonitor | None = None
        self.join = self._membership.join
        self.announce = self._membership.announce
        self.report_reconfigured = self._membership.report_reconfigured
        self.begin_drain = self._membership.begin_drain
        self.fail = self._membership.fail
        self.leave = self._membership.leave

    @asynccontextmanager
    async def watching(
        self, instance: object, options: DeploymentOptions, counts: Counts | None = None
    ) -> AsyncIterator[None]:
        """See ``ControlTasks.watching``."""
        member, router = self._membership, options.request_router_config
        with contextlib.closing(LoopProbe(running_endpoint())) as probe:
            self._monitor = HealthMonitor(
                instance, options, member.report_health, probe=probe, measures=self._health
            )
            async with (
                self._monitor,
                StatsReporter(instance, router, member.report_routing_stats),
                LoadReporter(instance, options, counts, member.report_load),
            ):
                yield
        self._monitor = None  # It keeps the instance alive.

    def follow(self, options: DeploymentOptions) -> None:
        """See ``ControlTasks.follow``."""
        if self._monitor is not None:
            self._monitor.follow(options)


class ThreadedControlTasks:
    """Runs in a loop of its own, in a daemon thread that ends with ``leave``.

    If a caller is cancelled, so is its task in that loop.

    Args:
        make_membership: Makes the ``Membership``, in the loop that it is to use.
        on_command: Called with each command, in the loop of user code.
        health: Counts the checks.
    """

    def __init__(
        self,
        make_membership: MakeMembership,
        on_command: OnCommand,
        health: HealthMeasures | None = None,
    ) -> None:
        self._health = health
        self._user_loop = asyncio.get_running_loop()
        # A health check that hangs in a thread of the pool is not waited for.
        self._thread = LoopThread("pyserve-duties", waits_for_threads=False)
        self._make_membership = make_membership
        self._on_command = on_command
        self._membership: Membership | None = None
        self._monitor: HealthMonitor | None = None

    async def join(self) -> mesh_pb2.Assign:
        """See ``Membership.join``."""
        return await self._there(self._join())

    async def announce(self, ready: mesh_pb2.Ready) -> None:
        """See ``Membership.announce``."""
        await self._there(self._joined().announce(ready))

    async def report_reconfigured(self, outcome: mesh_pb2.Reconfigured) -> None:
        """See ``Membership.report_reconfigured``."""
        await self._there(self._joined().report_reconfigured(outcome))

    async def begin_drain(self) -> None:
        """See ``Membership.begin_drain``."""
        await self._there(self._joined().begin_drain())

    async def fail(self, *, summary: str, traceback: str, user_code: bool) -> bool:
        """See ``Membership.fail``."""
        return await self._there(
            self._joined().fail(summary=summary, traceback=traceback, user_code=user_code)
        )

    async def leave(self) -> None:
        """See ``Membership.leave``; ends the thread."""
        if self._membership is not None:
            await self._there(self._membership.leave())
        self._thread.close()  # It has nothing left to do but to close its loop.

    @asynccontextmanager
    async def watching(
        self, instance: object, options: DeploymentOptions, counts: Counts | None = None
    ) -> AsyncIterator[None]:
        """See ``ControlTasks.watching``.

        The checks are user code and run in its loop; the loop's own responsiveness is checked too.
        """
        member, user_loop = self._joined(), self._user_loop
        probe = LoopProbe(running_endpoint())
        monitor = HealthMonitor(
            instance,
            options,
            member.report_health,
            user_loop=user_loop,
            probe=probe,
            measures=self._health,
        )
        self._monitor = monitor
        reporter = StatsReporter(
            instance,
            options.request_router_config,
            member.report_routing_stats,
            user_loop=user_loop,
        )
        load = LoadReporter(instance, options, counts, member.report_load, user_loop=user_loop)
        async with AsyncExitStack() as entered:
            entered.callback(probe.close)
            for each in (monitor, reporter, load):
                await self._there(each.__aenter__())
                entered.push_async_callback(self._leave, each)
            yield
        self._monitor = None  # It keeps the instance alive.

    def follow(self, options: DeploymentOptions) -> None:
        """See ``ControlTasks.follow``."""
        if self._monitor is not None:
            self._thread.loop.call_soon_threadsafe(self._monitor.follow, options)

    async def _leave(self, entered: Questioner[Any]) -> None:
        await self._there(entered.__aexit__(None, None, None))

    async def _join(self) -> mesh_pb2.Assign:
        keep_from_forks(asyncio.get_running_loop())
        self._membership = self._make_membership(self._hand_over)
        return await self._membership.join()

    def _hand_over(self, command: mesh_pb2.ReplicaCommand) -> None:
        self._user_loop.call_soon_threadsafe(self._on_command, command)

    def _joined(self) -> Membership:
        assert self._membership is not None, "invariant: join comes first"
        return self._membership

    async def _there(self, work: Coroutine[object, object, Value]) -> Value:
        return await asyncio.wrap_future(self._thread.run(work))
