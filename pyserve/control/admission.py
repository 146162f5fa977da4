"""Admits applications, one by one or a file at once, and reports how their deploy goes.

Everything is checked before anything changes, so a request that is refused leaves the mesh as it
is. Nothing here waits, starts or stops anything; the controller is the only caller.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace

from pyserve.config import DeploymentOptions, check_name
from pyserve.config.capabilities import Capabilities
from pyserve.config.unneeded import PAGE
from pyserve.control.reconcile.rollout import Former, Reconfiguring
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import Desired, MeshState, Version
from pyserve.control.state.specs import (
    Versions,
    changes_limits_only,
    helper_keys,
    read_versions,
    run_of,
    serving_specs,
    unchanged_keys,
)
from pyserve.control.state.traffic import check_traffic
from pyserve.errors import MeshError, UsageError
from pyserve.types import ApplicationName, DeploymentKey
from pyserve.wire.v1 import control_pb2, mesh_pb2


@dataclass(frozen=True, slots=True)
class Admission:
    """One application that may be let in.

    Attributes:
        keeps_equal: unchanged deployments stay as they are.
    """

    application: ApplicationName
    info: ApplicationInfo
    versions: Versions
    keeps_equal: bool = False


class Admissions:
    """Admits applications to the mesh.

    Args:
        state: the mesh's actual and desired state.
        applications: those admitted so far.
        specs: of all versions, by their ids.
        reconfiguring: the configuration changes under way.
        limit: sets other limits for a deployment that serves.
        launcher: its name and capabilities.

    Attributes:
        are_closed: the mesh is about to end.
    """

    def __init__(
        self,
        state: MeshState,
        applications: Applications,
        specs: dict[str, mesh_pb2.DeploymentSpec],
        reconfiguring: Reconfiguring,
        limit: Callable[[DeploymentKey, DeploymentOptions], None],
        launcher: tuple[str, Capabilities],
    ) -> None:
        self._state = state
        self._applications = applications
        self._specs = specs
        self._reconfiguring = reconfiguring
        self._limit = limit
        self._launcher, self._capabilities = launcher
        self.are_closed = False

    def check(self, request: control_pb2.DeployRequest, deploys: int) -> Admission:
        """Return what a deploy asks for; there have been ``deploys`` before.

        Raises:
            UsageError: the request names something twice, an option is not allowed, or another
                application has the route prefix.
            MeshError: the mesh is about to end.
        """
        (admission,) = self._check([request], deploys)
        return admission

    def check_file(self, request: control_pb2.ApplyRequest, deploys: int) -> list[Admission]:
        """Return what a whole file asks for, in its order; there have been ``deploys`` before.

        Raises:
            UsageError: as of ``check``, or two applications are in each other's way.
            MeshError: the mesh is about to end.
        """
        _check_once("application", [each.application for each in request.applications])
        _check_once(
            "route_prefix",
            [
                each.route_prefix
                for each in request.applications
                if each.route_prefix and not each.route_prefix_is_default
            ],
        )
        for each in request.applications:
            each.run.CopyFrom(request.run)
        return self._check(
            request.applications,
            deploys,
            leaving=self.leaving(request),
            keeps_equal=True,
            percent=request.target_capacity if request.HasField("target_capacity") else None,
        )

    def leaving(self, request: control_pb2.ApplyRequest) -> list[ApplicationName]:
        """Return the applications of an earlier file of the same owner that are not in this one."""
        owner = run_of(request.run)
        staying = {each.application for each in request.applications}
        return [
            name
            for name, info in self._applications.infos.items()
            if info.declaration_json
            and info.run == owner
            and name not in staying
            and any(item.target is not None for item in self._state.of_application(name))
        ]

    def _check(
        self,
        requests: Sequence[control_pb2.DeployRequest],
        deploys: int,
        *,
        leaving: Collection[ApplicationName] = (),
        keeps_equal: bool = False,
        percent: float | None = None,
    ) -> list[Admission]:
        if self.are_closed:
            raise MeshError("the mesh is shutting down and takes no new application")
        names = [ApplicationName(check_name("application", each.application)) for each in requests]
        found = []
        for at, (name, request) in enumerate(zip(names, requests, strict=True), 1):
            capacity = self._applications.capacity_of(name, request.declaration_json, percent)
            versions = read_versions(name, capacity.applied(request.deployments), deploys + at)
            self._check_options(versions)
            info = self._applications.check(
                name, request, self._state, besides={name, *names, *leaving}
            )
            info = replace(info, deployed_at=time.time(), capacity=capacity)
            found.append(Admission(name, info, versions, keeps_equal))
        staying = {
            name: info for name, info in self._applications.infos.items() if name not in leaving
        }
        infos = {**staying, **{each.application: each.info for each in found}}
        together = {key: version for each in found for key, version in each.versions.items()}
        check_traffic(together, infos, self._state, leaving=leaving)
        return found

    def _check_options(self, versions: Versions) -> None:
        for key, (version, _) in versions.items():
            if why := self._capabilities.refusal(version.options):
                raise UsageError(
                    f"the launcher {self._launcher!r} of this mesh cannot start {key.deployment!r} "
                    f"of {key.application!r}: {why}"
                )

    def admit(self, admission: Admission) -> DeployWatch:
        """Admit an application; return what its driver waits for."""
        application, info, versions = admission.application, admission.info, admission.versions
        specs = {key: spec for key, (_, spec) in versions.items()}
        kept = unchanged_keys(self._state, application, self._specs, specs)
        if not admission.keeps_equal:
            # Nobody wishes for new ones of those: they would lose what they hold.
            kept &= helper_keys(versions)
        is_kept = kept == {item.key for item in self._state.of_application(application)}
        is_kept = is_kept and kept == specs.keys()
        former = self._applications.infos.get(application)
        if is_kept and former is not None:
            info = replace(info, deployed_at=former.deployed_at)
        self._applications.admit(application, info, self._state)
        if not is_kept and changes_limits_only(
            serving_specs(self._state, application, self._specs), specs
        ):
            targets = self._change_limits(application, versions)
        else:
            if not is_kept:
                self._reconfiguring.end(application)
            targets = {
                key: self._target(key) if key in kept else version
                for key, (version, _) in versions.items()
            }
            self._state.on_deploy(application, targets)
        self._specs |= {targets[key].id: spec for key, spec in specs.items()}
        ids = {key: item.id for key, item in targets.items()}
        watch = DeployWatch(application, ids, is_unchanged=is_kept)
        for key, item in targets.items():
            for line in self._capabilities.lines_on(item.options):
                where = f"deployment {key.deployment!r} of {key.application!r}"
                watch.notice(f"warning: {where}: {line}; see {PAGE}")
        return watch

    def _target(self, key: DeploymentKey) -> Version:
        target = self._state.deployments[key].target
        assert target is not None, "it shall serve on"
        return target

    def _change_limits(
        self, application: ApplicationName, versions: Versions
    ) -> dict[DeploymentKey, Version]:
        """Give the targets that serve the limits of ``versions``; return those targets."""
        targets, former = {}, {}
        for key, (wanted, _) in versions.items():
            target = targets[key] = self._target(key)
            self._state.deployments[key].failure = None
            former[key] = Former(target.id, target.options, self._specs[target.id])
            self._limit(key, wanted.options)
        self._reconfiguring.begin(self._state, application, former)
        return targets


def _check_once(field: str, names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError(
            f"{field} {', '.join(map(repr, twice))} stands at several applications of one file; "
            f"give each its own"
        )


# Reports to drivers how their deploy goes: progress, then one final event.

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
