"""The phases of a replica's life, each with what it has and what commands then change.

``worker.py`` goes from one to the next: joined, loading, constructing, serving, ended. What the
controller changes in an early phase is kept in ``Changes`` for those that follow.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from pyserve import cache
from pyserve.aio import Server
from pyserve.batching import PROCESS_ACTIVITY, StepState
from pyserve.config import DeploymentOptions
from pyserve.multiplexing import PROCESS_DIRECTORY
from pyserve.observe.failures import describe, format_from_user_code
from pyserve.observe.metrics.families import Tally
from pyserve.replica.asgi import AsgiApplication
from pyserve.replica.engines import engine_models
from pyserve.replica.listeners import Listeners
from pyserve.replica.loading import (
    Loaded,
    LoadError,
    check_first,
    initialize,
    metadata_json,
    reconfigure,
    start_application,
    warm_up,
)
from pyserve.replica.logs import ReplicaLogging
from pyserve.replica.serving import EndpointThreads
from pyserve.stepping.decorator import begin_steps, tell_costs
from pyserve.wire.v1 import mesh_pb2


@dataclass(slots=True)
class Changes:
    """What the controller has changed since the Assign; None: nothing.

    Attributes:
        limit: ``max_ongoing_requests``.
        options: All options.
    """

    limit: int | None = None
    options: DeploymentOptions | None = None


class Joined:
    """Nothing of the deployment is here yet, or it is gone again."""

    def __init__(self, changes: Changes | None = None) -> None:
        self.changes = changes or Changes()

    def set_limit(self, limit: int) -> None:
        """Change how many calls run at once."""
        self.changes.limit = limit

    def follow(self, options: DeploymentOptions) -> None:
        """Take other options."""
        self.changes.options = options

    def reconfigure(self, command: mesh_pb2.Reconfigure) -> None:
        """Apply a ``user_config``: it comes after Ready only, and one that ends needs none."""

    def close_web_sockets(self) -> None:
        """Ask the clients of WebSockets to leave, as the mesh ends."""

    def abandon(self) -> None:
        """Remove the files of a process that ends without a drain; from any thread."""

    def close(self) -> None:
        """Write no more logs. The last thing that a phase does."""


class Loading(Joined):
    """The deployment's logs are set up; its code is imported."""

    def __init__(self, before: Joined, logs: ReplicaLogging) -> None:
        super().__init__(before.changes)
        self.logs = logs

    def follow(self, options: DeploymentOptions) -> None:
        """Take other options, of which the log has some at once."""
        super().follow(options)
        self.logs.follow(options.logging_config)

    def close(self) -> None:
        """Write no more logs."""
        self.logs.close()


class Constructing(Loading):
    """User code runs: the constructor, and what comes before the first call."""

    def __init__(self, before: Loading, threads: EndpointThreads | None) -> None:
        super().__init__(before, before.logs)
        self.threads = threads
        """Those of anyio; None: nothing here uses it."""

    def set_limit(self, limit: int) -> None:
        """Change how many calls run at once, and on how many threads."""
        super().set_limit(limit)
        if self.threads is not None:
            self.threads.follow(limit)


class Serving(Constructing):
    """The server takes calls."""

    def __init__(
        self,
        before: Constructing,
        made: Constructed,
        server: Server,
        listeners: Listeners,
        reconfigurer: Reconfigurer,
    ) -> None:
        super().__init__(before, before.threads)
        self.made = made
        self.server = server
        self.listeners = listeners
        self.reconfigurer = reconfigurer

    def begin(self) -> None:
        """Have the started server follow what this process does."""
        self.logs.watch(self.server)
        native = self.server.native
        # Models that are still loading are reported too, so that routers prefer this replica.
        PROCESS_DIRECTORY.subscribe(native.set_models)
        native.set_models(PROCESS_DIRECTORY.models())
        cache.report_to(native)
        # The native half alone: the other one keeps the instance alive beyond its end.
        PROCESS_ACTIVITY.listen(partial(_tell_steps, native.set_batch, native.clear_batch))
        tell_costs(self.made.instance, native.set_costs)
        self._apply_limit()

    def _apply_limit(self) -> None:
        if self.changes.limit is not None:
            self.server.set_maximum_concurrent_rpcs(self.changes.limit)
        if self.made.application is not None:
            self.made.application.set_places(self.limit())

    def limit(self) -> int:
        """Return how many calls may run at once now."""
        return self.changes.limit or self.made.loaded.options.ongoing_requests_limit()

    def grace_s(self) -> float:
        """Return the deployment's grace for calls in flight."""
        options = self.changes.options or self.made.loaded.options
        return options.graceful_shutdown_timeout_s

    def set_limit(self, limit: int) -> None:
        """Change how many calls run at once."""
        super().set_limit(limit)
        self._apply_limit()

    def follow(self, options: DeploymentOptions) -> None:
        """Take other options."""
        self.reconfigurer.timeout_s = options.startup_timeout_s
        super().follow(options)

    def reconfigure(self, command: mesh_pb2.Reconfigure) -> None:
        """Apply a ``user_config``."""
        self.reconfigurer.take(command)

    def close_web_sockets(self) -> None:
        """Ask the clients of WebSockets to leave; balancers at direct ports go elsewhere."""
        if self.made.application is not None:
            self.made.application.drain()
            self.server.native.set_healthy(False)

    def abandon(self) -> None:
        """Remove the Unix socket."""
        self.listeners.abandon()

    def end(self) -> Loading:
        """Leave paths and ports; return the phase after it, which does not keep the instance."""
        self.listeners.close()
        return Loading(self, self.logs)


def _tell_steps(
    tell: Callable[..., None], clear: Callable[[], None], state: StepState | None
) -> None:
    """Leave what the batcher does for the trailers of answers."""
    if state is None:
        clear()
    else:
        # `dataclasses.asdict` copies deeply, for each batch.
        tell(**{name: getattr(state, name) for name in StepState.__slots__})


class Reconfigurer:
    """Calls ``reconfigure`` for one command after the other while its context is entered.

    Of several that wait only the last one counts. Runs in the loop of user code.

    Args:
        instance: The user's object.
        timeout_s: How long one may take.
        config: Number of the configuration that it has.
        report: Sends the outcome to the controller.
        times: Takes how long each took.
    """

    def __init__(
        self,
        instance: object,
        *,
        timeout_s: float,
        config: int,
        report: Callable[[mesh_pb2.Reconfigured], Awaitable[None]],
        times: Tally | None = None,
    ) -> None:
        self._instance = instance
        self.timeout_s = timeout_s
        self._report = report
        self._times = times or Tally()
        self._outcome = mesh_pb2.Reconfigured(config=config)
        self._wanted: mesh_pb2.Reconfigure | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def take(self, wanted: mesh_pb2.Reconfigure) -> None:
        """Apply a configuration as soon as the one before is done; report the outcome."""
        self._wanted = wanted
        if not self._has_ended and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name="pyserve reconfigure")

    async def _run(self) -> None:
        while (wanted := self._wanted) is not None:
            self._wanted = None
            # The same one comes again where the controller has missed the answer.
            if wanted.config != self._outcome.config:
                self._outcome = await self._outcome_of(wanted)
            await self._report(self._outcome)

    async def _outcome_of(self, wanted: mesh_pb2.Reconfigure) -> mesh_pb2.Reconfigured:
        outcome = mesh_pb2.Reconfigured(config=wanted.config)
        config = json.loads(wanted.user_config_json)
        begun = time.monotonic()
        try:
            await reconfigure(self._instance, config, timeout_s=self.timeout_s)
        except LoadError as error:
            outcome.summary, outcome.traceback = error.summary, error.traceback
        self._times.add(time.monotonic() - begun)
        return outcome


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Constructed:
    """The user's object, and what belongs to it.

    Attributes:
        loaded: The class, its options and services.
        instance: The user's object.
        application: The ASGI application of an ingress; None: it has none.
        metadata_json: What the user's code says of this replica.
        models: Those of an engine for language models.
    """

    loaded: Loaded
    instance: object
    application: AsgiApplication | None
    metadata_json: str
    models: Sequence[mesh_pb2.EngineModel] = ()


class Run(Protocol):
    """Awaits one step, or ends it early by an exception of its own."""

    def __call__(self, step: Coroutine[Any, Any, Value], /) -> Awaitable[Value]:
        """Return what the step returns."""


class Preparation:
    """Does the steps, once.

    Args:
        loaded: The class and its options.
        instance: What its constructor has made.
        middlewares: Import path of what stands before a web application; None: nothing does.

    Attributes:
        is_initialized: An ``async def __init__`` has ended, if there is one.
        application: The ASGI application, once it has started.
    """

    def __init__(self, loaded: Loaded, instance: object, middlewares: str | None) -> None:
        self._loaded = loaded
        self._instance = instance
        self._middlewares = middlewares
        self.is_initialized = False
        self.application: AsgiApplication | None = None

    async def run(self, run: Run, enter: Callable[[], object]) -> Constructed:
        """Do all steps, in order.

        Args:
            run: Awaits each.
            enter: Called when the instance is whole: its code may ask for it from now on.

        Raises:
            LoadError: User code raised.
        """
        loaded, instance, options = self._loaded, self._instance, self._loaded.options
        await run(initialize(loaded, instance))
        self.is_initialized = True
        enter()
        startup_s = options.startup_timeout_s
        await run(reconfigure(instance, options.user_config, timeout_s=startup_s))
        await run(_begin_steps(instance))
        await run(warm_up(instance))
        metadata = await run(metadata_json(instance))
        models = await run(engine_models(loaded, instance))
        self.application = await run(start_application(loaded.target, self._middlewares))
        await run(check_first(instance, options.health_check_timeout_s))
        return Constructed(loaded, instance, self.application, metadata, models)


async def _begin_steps(instance: object) -> None:
    """Start the process in which a continuously batched class steps, if it does."""
    try:
        await begin_steps(instance)
    except Exception as error:
        label = f"the process that steps {type(instance).__qualname__} could not begin"
        trace = "\n".join([format_from_user_code(error), *getattr(error, "__notes__", ())])
        raise LoadError(f"{label}: {describe(error)}", trace, user_code=True) from error


class StoppedEarly(Exception):
    """The replica was asked to end before it served."""


class Stop:
    """Whether a replica is to end. Used on its loop.

    Attributes:
        grace_s: How long it may take; None: as long as its deployment says.
    """

    def __init__(self) -> None:
        self.grace_s: float | None = None
        self._asked = asyncio.Event()
        self._asked_at = 0.0

    def ask(self, grace_s: float | None = None) -> None:
        """Ask it to end; of several graces the shortest counts."""
        if grace_s is not None and (self.grace_s is None or grace_s < self.grace_s):
            self.grace_s = grace_s
        self._asked_at = self._asked_at or asyncio.get_running_loop().time()
        self._asked.set()

    def await_another(self) -> None:
        """Let ``wait`` wait for a second request, which cuts the grace short."""
        self._asked.clear()

    async def wait(self) -> None:
        """Wait until it is asked to end."""
        await self._asked.wait()

    def ends_at(self, default_s: float) -> float:
        """Return the loop's time at which its grace is over; ``default_s`` is its deployment's."""
        begun = self._asked_at or asyncio.get_running_loop().time()
        return begun + (default_s if self.grace_s is None else self.grace_s)

    async def unless(self, step: Coroutine[object, object, Value], default_s: float = 0.0) -> Value:
        """Await ``step``; when the replica is to end, cancel it and wait until it has ended.

        Args:
            step: What belongs to the start.
            default_s: The grace of the deployment; a step that does not end within is left.

        Raises:
            StoppedEarly: The replica is to end.
        """
        task = asyncio.ensure_future(step)
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return task.result()
        task.cancel()
        left_s = self.ends_at(default_s) - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(left_s, 0.0))
        if task.done() and not task.cancelled():
            task.exception()  # Otherwise asyncio logs an unretrieved exception.
        raise StoppedEarly
