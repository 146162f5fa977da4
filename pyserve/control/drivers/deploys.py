"""Reports to drivers how their deploy goes: progress, then one final event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyserve.control.state.mesh import Desired, MeshState
from pyserve.types import ApplicationName, DeploymentKey
from pyserve.wire.v1 import control_pb2

# Beyond this many unread events the oldest are dropped; the final one never is.
_EVENTS_MAX = 1000


@dataclass(eq=False)
class DeployWatch:
    """One driver that waits for one ``Deploy``.

    Attributes:
        versions: the id of each deployment's version in this deploy.
        finishing: it has succeeded, and the routers are being told.
        done: the last event is queued.
        is_unchanged: the deploy has left everything as it is.
    """

    application: ApplicationName
    versions: dict[DeploymentKey, str]
    _events: asyncio.Queue[control_pb2.DeployEvent] = field(default_factory=asyncio.Queue)
    _told: dict[DeploymentKey, tuple[int, int]] = field(default_factory=dict)
    finishing: bool = False
    done: bool = False
    is_unchanged: bool = False

    async def events(self) -> AsyncIterator[control_pb2.DeployEvent]:
        """Yield progress until ``Deployed`` or ``DeployFailed``, which is the last event."""
        while True:
            event = await self._events.get()
            yield event
            if event.WhichOneof("kind") not in ("progress", "notice"):
                return

    def _keep(self, event: control_pb2.DeployEvent) -> None:
        # A driver that does not read misses old events; the last ones have the current state.
        if self._events.qsize() >= _EVENTS_MAX:
            self._events.get_nowait()
        self._events.put_nowait(event)

    def notice(self, text: str) -> None:
        """Queue a line for the driver's terminal."""
        self._keep(control_pb2.DeployEvent(notice=text))

    def follow(self, state: MeshState, notes: list[tuple[DeploymentKey, str]]) -> None:
        """Queue the news: each note of this application, else a change of the counts."""
        if self.done:
            return
        for key, note in notes:
            if key in self.versions:
                self._progress(state, key, note)
        for key in self.versions:
            if self._counts(state, key) != self._told.get(key):
                self._progress(state, key, "")

    def outcome(self, state: MeshState) -> Desired | bool | None:
        """Return the deployment that failed, ``True`` when all are complete, else ``None``."""
        current = [state.deployments.get(key) for key in self.versions]
        for desired in current:
            if desired is not None and desired.failure is not None:
                return desired
        if all(
            desired is not None
            and desired.is_settled()
            and desired.target is not None
            and desired.target.id == self.versions[desired.key]
            for desired in current
        ):
            return True
        return None

    def has_older(self, state: MeshState) -> bool:
        """Whether replicas of earlier versions have not ended yet: they may be unloading models."""
        return any(
            replica.version != version
            for key, version in self.versions.items()
            for replica in state.of_deployment(key)
        )

    def tell_failures(self, state: MeshState) -> None:
        """Report replicas that failed and were replaced, which was not reported before."""
        for key, version_id in self.versions.items():
            version = state.version_of(key, version_id)
            if version is not None and version.first_failure is not None:
                self.notice(
                    f"{key.deployment}: {version.start_failures} replicas failed before: "
                    f"{version.first_failure.summary}; `pyserve logs {key.deployment}` has more"
                )

    def tell_refused(self, refused: Iterable[tuple[DeploymentKey, str, DeploymentKey]]) -> None:
        """Report deployments that plain HTTP does not reach, since others have their prefixes."""
        for key, prefix, holder in refused:
            if key in self.versions:
                self.notice(
                    f"plain HTTP below {prefix} goes to {holder}, and none to {key}; give "
                    f"route_prefix (`pyserve run --route-prefix`) to reach it"
                )

    def deployed(self, addresses: tuple[str, ...], view_version: int) -> None:
        """Report that every deployment serves only the new version, from that view on."""
        deployed = control_pb2.Deployed(
            addresses=addresses, view_version=view_version, unchanged=self.is_unchanged
        )
        self._last(control_pb2.DeployEvent(deployed=deployed))

    def failed(self, deployment: str, summary: str, traceback: str = "") -> None:
        """Report that the deploy has failed for good."""
        failure = control_pb2.DeployFailed(
            deployment=deployment, summary=summary, traceback=traceback
        )
        self._last(control_pb2.DeployEvent(failed=failure))

    def _last(self, event: control_pb2.DeployEvent) -> None:
        if not self.done:
            self.done = True
            self._keep(event)

    def _progress(self, state: MeshState, key: DeploymentKey, note: str) -> None:
        ready, wanted = self._told[key] = self._counts(state, key)
        progress = control_pb2.Progress(
            deployment=key.deployment, ready=ready, wanted=wanted, note=note
        )
        self._keep(control_pb2.DeployEvent(progress=progress))

    def _counts(self, state: MeshState, key: DeploymentKey) -> tuple[int, int]:
        version = state.version_of(key, self.versions[key])
        ready = sum(
            replica.serves and replica.version == self.versions[key]
            for replica in state.of_deployment(key)
        )
        if version is None:
            # Given up: of as many as were wanted last.
            return ready, self._told.get(key, (0, 0))[1]
        return ready, version.num_replicas


@dataclass(eq=False)
class Applied:
    """One driver that waits for the applications of a file.

    Attributes:
        watches: of the applications in the file.
        leaving: the applications that end because the file lacks them.
        gone: waits until those have ended.
    """

    watches: tuple[DeployWatch, ...]
    leaving: Mapping[ApplicationName, Sequence[Desired]]
    gone: Callable[[Sequence[Desired]], Awaitable[None]]

    async def send(self, write: Callable[[control_pb2.ApplyEvent], Awaitable[None]]) -> None:
        """Write the events one after the other, until everything has ended."""
        order = asyncio.Lock()

        async def write_in_turn(event: control_pb2.ApplyEvent) -> None:
            async with order:
                await write(event)

        async def follow(watch: DeployWatch) -> None:
            async for event in watch.events():
                name = watch.application
                await write_in_turn(control_pb2.ApplyEvent(application=name, event=event))

        async def await_end(name: ApplicationName, items: Sequence[Desired]) -> None:
            await self.gone(items)
            await write_in_turn(control_pb2.ApplyEvent(application=name))

        async with asyncio.TaskGroup() as group:
            for watch in self.watches:
                group.create_task(follow(watch))
            for name, items in self.leaving.items():
                group.create_task(await_end(name, items))
