"""The phases of a replica's life, each with what it has and what commands then change.

``worker.py`` goes from one to the next: joined, loading, constructing, serving, ended. What the
controller changes in an early phase is kept in ``Changes`` for those that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pyserve import cache
from pyserve.aio import Server
from pyserve.batching import PROCESS_ACTIVITY, StepState
from pyserve.config import DeploymentOptions
from pyserve.multiplexing import PROCESS_DIRECTORY
from pyserve.replica.listeners import Listeners
from pyserve.replica.logs import ReplicaLogging
from pyserve.replica.preparing import Constructed
from pyserve.replica.reconfiguring import Reconfigurer
from pyserve.replica.threads import EndpointThreads
from pyserve.stepping.decorator import tell_costs
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
