"""Where a replica's own duties run: beside user code in its loop, or in a thread of their own.

The duties are the communication with the controller, health checks, and load and routing stats; the
data plane is native and has its own threads in any case. In a thread of their own the duties go on
while user code blocks its loop, and an unanswered health check times out. ``worker.py`` uses both
variants through the same interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, Self, TypeVar

from pyserve.bridge import LoopProbe, keep_from_forks, running_endpoint
from pyserve.config import DeploymentOptions
from pyserve.loop_thread import LoopThread
from pyserve.observe.log_rate_limit import LogRateLimit
from pyserve.replica.hooks import (
    HealthMeasures,
    HealthMonitor,
    Hook,
    HookFailed,
    Question,
    Questioner,
    StatsReporter,
)
from pyserve.replica.membership import Membership
from pyserve.replica.step_reports import step_costs, step_load
from pyserve.stepping.decorator import is_continuous
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


# Reports this replica's load to the controller, if its deployment scales with the load.
#
# Counters are native and looked at ten times a second while calls come; the user's
# `record_autoscaling_stats` is asked each second. Counts travel only when they have changed.

_LOGGER = logging.getLogger(__name__)
# While calls come, and while none has come for a while.
BUSY_PERIOD_S, IDLE_PERIOD_S = 0.1, 0.25
_IDLE_AFTER_S = 10.0
_STATS_PERIOD_S = 1.0
# Where nothing but people look at them.
_COSTS_PERIOD_S = 1.0
# As in Ray Serve.
_STATS_TIMEOUT_S = 10.0
_STATS_MAX = 64
# Returns how many calls run now, and how many have begun.
Counts = Callable[[], tuple[int, int]]
Report = Callable[[mesh_pb2.ReplicaLoad], Awaitable[None]]


class LoadCounter:
    """Makes reports of counts. Pure.

    The time that calls spend here is summed up from one look to the next.
    """

    def __init__(self) -> None:
        self._ongoing = self._calls = 0
        self._busy_s = 0.0
        self._costs: mesh_pb2.StepCosts | None = None
        self._looked_at: float | None = None
        self._steps: mesh_pb2.StepLoad | None = None
        self._told: tuple[object, ...] | None = None
        self._active_at = -math.inf

    def look(
        self,
        ongoing: int,
        calls: int,
        now: float,
        *,
        costs: mesh_pb2.StepCosts | None = None,
        steps: mesh_pb2.StepLoad | None = None,
    ) -> mesh_pb2.ReplicaLoad | None:
        """Return the report due now; ``None``: nothing has changed."""
        if self._looked_at is not None:
            elapsed_s = now - self._looked_at
            self._busy_s += (self._ongoing + ongoing) / 2 * elapsed_s
        self._ongoing, self._calls, self._looked_at = ongoing, calls, now
        self._costs, self._steps = costs, steps
        counts: tuple[object, ...] = ongoing, calls
        if costs is not None:
            counts += (costs.running, costs.waiting)
        if steps is not None:  # How long requests have waited, the controller goes on to count.
            counts += (steps.first_values, steps.next_values, steps.unanswered, steps.fullness)
        if ongoing or counts != self._told:
            self._active_at = now
        if counts == self._told:
            return None
        self._told = counts
        return self.again()

    def again(self) -> mesh_pb2.ReplicaLoad:
        """Return the last report."""
        return mesh_pb2.ReplicaLoad(
            ongoing=self._ongoing,
            calls=self._calls,
            busy_s=self._busy_s,
            cost=0.0 if self._costs is None else self._costs.running + self._costs.waiting,
            costs=self._costs,
            steps=self._steps,
        )

    def period_s(self, now: float) -> float:
        """Return after how long to look again."""
        return BUSY_PERIOD_S if now - self._active_at < _IDLE_AFTER_S else IDLE_PERIOD_S


class LoadReporter(Questioner[str]):
    """Reports while its context is entered.

    Where the deployment does not scale, what requests cost, for the status; or nothing.

    Args:
        instance: The user's object.
        options: Of its deployment.
        counts: Of the native server; safe in any thread.
        report: Called with each report, in the loop that this runs in.
        user_loop: Where a ``record_autoscaling_stats`` that is a coroutine function runs;
            ``None``: in the running loop.
    """

    def __init__(
        self,
        instance: object,
        options: DeploymentOptions,
        counts: Counts | None,
        report: Report,
        *,
        user_loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._scales = options.scaling is not None
        self._counts = counts if self._scales or is_continuous(instance) else None
        self._instance = instance
        self._tells_steps = options.scaling is not None and options.scaling.has_time_targets
        method: Callable[[], object] | None = getattr(instance, "record_autoscaling_stats", None)
        hook = method and Hook(method, stats_json, timeout_s=_STATS_TIMEOUT_S, user_loop=user_loop)
        super().__init__(hook if self._scales and counts is not None else None)
        self._report = report
        self._counter = LoadCounter()
        self._looks: asyncio.Task[None] | None = None
        self._lines = LogRateLimit()

    async def __aenter__(self) -> Self:
        """Begin."""
        if self._counts is not None:
            self._looks = asyncio.create_task(self._look_forever(self._counts))
        return await super().__aenter__()

    async def __aexit__(self, *ended: object) -> None:
        """End."""
        if self._looks is not None:
            self._looks.cancel()
            await asyncio.wait([self._looks])
        await super().__aexit__(None, None, None)

    async def _look_forever(self, counts: Counts) -> None:
        loop = asyncio.get_running_loop()
        while True:
            costs = step_costs(self._instance)
            if not self._scales and costs is None:
                await asyncio.sleep(_COSTS_PERIOD_S)
                continue
            steps = step_load(self._instance) if self._tells_steps else None
            load = self._counter.look(*counts(), loop.time(), costs=costs, steps=steps)
            if load is not None:
                await self._report(load)
            period_s = self._counter.period_s(loop.time()) if self._scales else _COSTS_PERIOD_S
            await asyncio.sleep(period_s)

    async def _ask_forever(self, hook: Question[str]) -> None:
        while True:
            try:
                said = await hook.ask()
            except HookFailed as error:
                if self._lines.allows():
                    _LOGGER.warning(
                        "record_autoscaling_stats %s; the policy sees what it said before", error
                    )
            else:
                load = self._counter.again()
                load.stats_json = said
                await self._report(load)
            await asyncio.sleep(_STATS_PERIOD_S)


def stats_json(value: object) -> str:
    """Return what ``record_autoscaling_stats`` said as it travels.

    Raises:
        ValueError: It is no dict of numbers, or has more than 64.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"it returned {type(value).__name__} instead of a dict")
    if len(value) > _STATS_MAX:
        raise ValueError(f"it returned {len(value)} metrics; at most {_STATS_MAX} travel")
    numbers = {}
    for name, number in value.items():
        try:
            numbers[str(name)] = float(number)
        except (TypeError, ValueError) as error:
            raise ValueError(f"its {name!r} is {number!r}, no number") from error
    try:
        return json.dumps(numbers, allow_nan=False)
    except ValueError as error:
        raise ValueError("one of its numbers is infinite, or none (nan)") from error
