"""Admits applications: one by one, or those of a file all at once.

Everything is checked before anything changes, so a request that is refused leaves the mesh as it
is. Nothing here waits, starts or stops anything; the controller is the only caller.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from pyserve.config import DeploymentOptions, check_name
from pyserve.config.capabilities import Capabilities
from pyserve.config.unneeded import PAGE
from pyserve.control.drivers.deploys import DeployWatch
from pyserve.control.reconcile.reconfiguring import Former, Reconfiguring
from pyserve.control.state.applications import ApplicationInfo, Applications
from pyserve.control.state.mesh import MeshState, Version
from pyserve.control.state.run import run_of
from pyserve.control.state.specs import (
    Versions,
    changes_limits_only,
    helper_keys,
    read_versions,
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
