"""The applications of a mesh and where plain HTTP reaches them. Pure.

Each prefix leads to one deployment. A prefix that was asked for is refused while another
application holds it. A default one, "/", goes to the first application that takes plain HTTP; the
others are reached by handles, gRPC and prefixes of their own.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pyserve.config import AutoscalingConfig, AutoscalingPolicy, DeploymentOptions
from pyserve.config.http import check_route_prefix
from pyserve.control.state.mesh import MeshState
from pyserve.control.state.specs import Run, run_of
from pyserve.errors import OptionError, UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import control_pb2, mesh_pb2

# A share of what a file asks for: fewer replicas of all its deployments at once.
#
# An outer controller moves load from one mesh to another in steps, and tells each how much of its
# configuration it needs: `target_capacity`, in percent. The numbers that follow are worked out when
# a deploy is let in; from there on they are ordinary numbers of replicas and bounds.

_ALL = 100.0


class Direction(enum.Enum):
    """Where a share has last moved."""

    UP = "UP"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The share of an application.

    Attributes:
        percent: from 0 to 100; None: not set, and all of it runs.
        direction: where it moved; None: nowhere, or not set.
    """

    percent: float | None = None
    direction: Direction | None = None

    def moved_to(self, percent: float | None, *, is_same: bool) -> Capacity:
        """Return the share that the next deploy asks for.

        Args:
            percent: of the deploy.
            is_same: the file says of the application what it said before.

        Raises:
            UsageError: it is no share.
        """
        if percent is not None and not 0 <= percent <= _ALL:  # NaN is not, either
            raise UsageError(f"target_capacity={percent:g} is not allowed; from 0 to 100")
        if percent is None:
            return Capacity()
        if not is_same:
            # Whatever is new takes load over, and that grows.
            return Capacity(percent, Direction.UP)
        if percent == self.percent:
            return self
        whole = _ALL if self.percent is None else self.percent
        # From none to 100 nothing changes but the word: as in Ray Serve that is the way down.
        return Capacity(percent, Direction.UP if percent > whole else Direction.DOWN)

    def of(self, number: int) -> int:
        """Return the share of a number of replicas: halves round up, and 1 is the least.

        There are none only where none were asked for, or none are to be.
        """
        if self.percent is None:
            return number
        if not self.percent or not number:
            return 0
        return max(math.floor(Fraction(self.percent) * number / 100 + Fraction(1, 2)), 1)

    def applied(self, specs: Sequence[mesh_pb2.DeploymentSpec]) -> list[mesh_pb2.DeploymentSpec]:
        """Return deployments with the numbers of replicas that are their share.

        Raises:
            OptionError: an option is not allowed.
        """
        if self.percent in (None, _ALL):
            return list(specs)
        found = []
        for spec in specs:
            scaled = mesh_pb2.DeploymentSpec()
            scaled.CopyFrom(spec)
            scaled.options_json = self._options(
                DeploymentOptions.from_json(spec.options_json)
            ).to_json()
            found.append(scaled)
        return found

    def _options(self, options: DeploymentOptions) -> DeploymentOptions:
        scaling = options.scaling
        if not self.percent:
            # No load, and no call that waits, may start any.
            return replace(options, num_replicas=0, autoscaling_config=None)
        if scaling is not None:
            return replace(options, autoscaling_config=self._scaling(scaling, options))
        assert isinstance(options.num_replicas, int), "auto has a scaling"
        share = options.whole_gangs(self.of(options.num_replicas))
        return replace(options, num_replicas=share)

    def _scaling(self, config: AutoscalingConfig, options: DeploymentOptions) -> AutoscalingConfig:
        def share(number: int) -> int:
            return options.whole_gangs(self.of(number))

        initial = config.initial_replicas
        least = config.min_replicas
        if initial is not None and self.direction is Direction.UP:
            # The load that is on its way has not been measured yet, and must not find too few.
            least = initial
        return replace(
            config,
            min_replicas=share(least),
            max_replicas=share(config.max_replicas),
            initial_replicas=None if initial is None else share(initial),
        )


@dataclass(frozen=True, slots=True)
class ApplicationInfo:
    """What an application has besides its deployments.

    Attributes:
        route_prefix: where plain HTTP should reach it; "": nowhere.
        prefix_is_default: that prefix was not asked for.
        ingress_deployment: the one that answers there.
        previous: the state before the current deploy; it applies until that has settled.
        run: who deployed it last; None: another program than ``pyserve run``.
        deployed_at: Unix time, in seconds.
        external_scaler_enabled: the numbers of its replicas are set from outside.
        autoscaling_policy: decides for all its deployments that scale; None: each has its own.
        declaration_json: what the file said that it comes from; "": it comes from none.
        is_external: it consists of replicas that others have started.
        capacity: how much of its numbers of replicas its file wants.
    """

    route_prefix: str
    ingress_deployment: str
    prefix_is_default: bool = False
    previous: ApplicationInfo | None = None
    run: Run | None = None
    deployed_at: float = 0.0
    external_scaler_enabled: bool = False
    autoscaling_policy: AutoscalingPolicy | None = None
    declaration_json: str = ""
    is_external: bool = False
    capacity: Capacity = field(default_factory=Capacity)


@dataclass(frozen=True, slots=True)
class HttpRoutes:
    """Which deployment takes plain HTTP below which prefix.

    Attributes:
        of_deployment: its prefixes.
        of_application: the route prefix that leads to it, for those that have one.
        refused: which deployments could not get which prefix, and its holder.
        of_engines: that of applications with an engine for language models.
    """

    of_deployment: dict[DeploymentKey, tuple[str, ...]]
    of_application: dict[ApplicationName, str]
    refused: tuple[tuple[DeploymentKey, str, DeploymentKey], ...]
    of_engines: dict[ApplicationName, str] = field(default_factory=dict)


@dataclass(slots=True)
class Applications:
    """All applications, oldest first."""

    infos: dict[ApplicationName, ApplicationInfo] = field(default_factory=dict)

    def check(
        self,
        name: ApplicationName,
        request: control_pb2.DeployRequest,
        state: MeshState,
        *,
        besides: Collection[ApplicationName] = (),
        is_external: bool = False,
    ) -> ApplicationInfo:
        """Return what a deploy asks for; ``admit`` applies it.

        Args:
            name: of the application.
            request: the deploy, or the description from an external replica.
            state: of the mesh.
            besides: applications that get other prefixes, or end, together with it.
            is_external: it is such a replica.

        Raises:
            UsageError: another application holds the prefix that was asked for, or the one of this
                name has replicas of the other kind.
            OptionError: it cannot be a prefix.
        """
        if (former := self.infos.get(name)) is not None and former.is_external != is_external:
            raise UsageError(_of_other_kind(name, is_external=former.is_external))
        prefix = request.route_prefix
        if prefix:
            check_route_prefix("route_prefix", prefix)
        if prefix and not request.route_prefix_is_default:
            holder = self._holder(prefix, state, besides={name, *besides})
            if holder is not None:
                raise UsageError(
                    f"route_prefix={prefix!r} of application {name!r} belongs to application "
                    f"{holder!r}; give one of them another prefix, or route_prefix=None"
                )
        return ApplicationInfo(
            route_prefix=prefix,
            ingress_deployment=request.ingress_deployment,
            prefix_is_default=request.route_prefix_is_default,
            run=run_of(request.run),
            external_scaler_enabled=request.external_scaler_enabled,
            autoscaling_policy=read_policy(request),
            declaration_json=request.declaration_json,
            is_external=is_external,
        )

    def admit(self, name: ApplicationName, info: ApplicationInfo, state: MeshState) -> None:
        """Take a deploy in; until it has settled the prefix before leads to it too."""
        former = self.infos.get(name)
        if former is not None and former.previous is not None:
            former = former.previous
        if former is not None and any(item.services for item in state.of_application(name)):
            info = replace(info, previous=former)
        self.infos[name] = info

    def declarations(self) -> list[control_pb2.Declaration]:
        """Return what the files said that applications came from, by name."""
        return [
            control_pb2.Declaration(application=name, json=info.declaration_json)
            for name, info in sorted(self.infos.items())
            if info.declaration_json
        ]

    def capacity_of(
        self, name: ApplicationName, declaration_json: str, percent: float | None
    ) -> Capacity:
        """Return the share that a file gives an application.

        Args:
            name: of the application.
            declaration_json: what the file says of it.
            percent: what the file says of all.

        Raises:
            UsageError: it is no share.
        """
        former = self.infos.get(name)
        is_same = former is not None and former.declaration_json == declaration_json
        before = Capacity() if former is None else former.capacity
        return before.moved_to(percent, is_same=is_same)

    def target_capacity(self, state: MeshState) -> float | None:
        """Return what the last file said of all its applications, if it said so."""
        of_files = [
            info
            for name, info in self.infos.items()
            if info.declaration_json
            and any(item.target is not None for item in state.of_application(name))
        ]
        # Those of the mesh's own file before those of a `pyserve run`.
        of_files.sort(key=lambda info: (info.run is not None, -info.deployed_at))
        return of_files[0].capacity.percent if of_files else None

    def owner_of(self, name: ApplicationName) -> Run | None:
        """Return who deployed an application last."""
        info = self.infos.get(name)
        return None if info is None else info.run

    def of_run(self, run_id: str) -> list[ApplicationName]:
        """Return what a run deployed last."""
        return [
            name
            for name, info in self.infos.items()
            if info.run is not None and info.run.id == run_id
        ]

    def wanted_of(self, run_id: str, state: MeshState) -> list[ApplicationName]:
        """Return the applications that a run deployed last and that are not ending already."""
        return [
            name
            for name in self.of_run(run_id)
            if any(item.target is not None for item in state.of_application(name))
        ]

    def replaces_another(self, name: ApplicationName) -> bool:
        """Say whether the deploy that goes on replaces what another run deployed."""
        previous = self.infos[name].previous
        return previous is not None and previous.run != self.infos[name].run

    def withdraw(self, name: ApplicationName) -> bool:
        """Go back to the state before the current deploy, if another run deployed that."""
        previous = self.infos[name].previous
        if previous is None or not self.replaces_another(name):
            return False
        self.infos[name] = previous
        return True

    def settle(self, state: MeshState) -> list[tuple[ApplicationName, Run]]:
        """Let go of what was before a deploy that succeeded, and of the wish of one that failed.

        Applications without a deployment are forgotten.

        Returns:
            Those that belong again to the run before, since another one's deploy has failed.
        """
        returned = []
        live = {key.application for key in state.deployments}
        self.infos = {name: info for name, info in self.infos.items() if name in live}
        for name, info in self.infos.items():
            deployments = list(state.of_application(name))
            if info.previous is None:
                continue
            if any(item.failure is not None for item in deployments):
                self.infos[name] = info.previous
                if (former := info.previous.run) is not None and former != info.run:
                    returned.append((name, former))
            elif all(item.is_settled() or item.target is None for item in deployments):
                self.infos[name] = replace(info, previous=None)
        return returned

    def routes(self, state: MeshState) -> HttpRoutes:
        """Give every prefix to the first deployment that asked for it and takes plain HTTP.

        Deployments of engines take no plain HTTP: the ingress serves it for them.
        """
        holders: dict[str, DeploymentKey] = {}
        plain: dict[DeploymentKey, tuple[str, ...]] = {}
        refused = []
        of_application: dict[ApplicationName, str] = {}
        for wish in self._wishes(state):
            holder = holders.setdefault(wish.prefix, wish.key)
            if holder != wish.key:
                if not wish.is_former:
                    refused.append((wish.key, wish.prefix, holder))
                continue
            if not wish.is_route or _takes_http(state, wish.key):
                known = plain.get(wish.key, ())
                plain[wish.key] = known if wish.prefix in known else (*known, wish.prefix)
            if wish.is_route and not wish.is_former:
                of_application[wish.key.application] = wish.prefix
        of_engines = {
            name: prefix for name, prefix in of_application.items() if _has_engine(state, name)
        }
        return HttpRoutes(plain, of_application, tuple(refused), of_engines)

    def _wishes(self, state: MeshState) -> Iterator[_Wish]:
        """Yield which deployment wants which prefix, in order of precedence."""
        routes = [
            _Wish(key, info.route_prefix, info.prefix_is_default, is_route=True)
            for name, info in self.infos.items()
            if info.route_prefix and _may_have_route(state, key := _ingress(name, info))
        ]
        # Deployments that are ending come after those that are not.
        asked = [wish for wish in routes if not wish.is_default]
        yield from sorted(asked, key=lambda wish: state.deployments[wish.key].target is None)
        for key, desired in state.deployments.items():
            yield from (_Wish(key, prefix) for prefix in desired.http_prefixes)
        # Then the default prefixes, last those of deployments not yet known to take HTTP.
        defaults = [wish for wish in routes if wish.is_default]
        yield from sorted(defaults, key=lambda wish: not _is_known(state, wish.key))
        for name, info in self.infos.items():
            former = info.previous
            if former is not None and former.route_prefix:
                key = _ingress(name, former)
                if _takes_http(state, key):
                    yield _Wish(key, former.route_prefix, is_former=True, is_route=True)

    def _holder(
        self, prefix: str, state: MeshState, *, besides: Collection[ApplicationName]
    ) -> ApplicationName | None:
        """Return the deployment that holds ``prefix``, or will when it is ready."""
        current = self.routes(state).of_application
        for name, info in self.infos.items():
            if name in besides:
                continue
            desired = state.deployments.get(_ingress(name, info))
            is_starting = desired is not None and not desired.services
            if current.get(name) == prefix or (
                is_starting and info.route_prefix == prefix and not info.prefix_is_default
            ):
                return name
        return None


def _of_other_kind(name: ApplicationName, *, is_external: bool) -> str:
    if is_external:
        return (
            f"the application {name!r} consists of replicas that others have started; end them "
            f"first, or deploy under another name"
        )
    return (
        f"the application {name!r} was deployed to this mesh, which starts its replicas itself; "
        f"delete it, or give this replica another --application"
    )


@dataclass(frozen=True, slots=True)
class _Wish:
    key: DeploymentKey
    prefix: str
    is_default: bool = False
    is_former: bool = False
    is_route: bool = False


def _ingress(name: ApplicationName, info: ApplicationInfo) -> DeploymentKey:
    return DeploymentKey(name, DeploymentName(info.ingress_deployment))


def _has_engine(state: MeshState, name: ApplicationName) -> bool:
    """Say whether a deployment of the application is an engine for language models."""
    return any(each.engine_models for each in state.of_application(name))


def _may_have_route(state: MeshState, ingress: DeploymentKey) -> bool:
    is_there = ingress in state.deployments
    return _takes_http(state, ingress) or (is_there and _has_engine(state, ingress.application))


def _is_known(state: MeshState, ingress: DeploymentKey) -> bool:
    """Say whether replicas have reported that they serve the route of their application."""
    return state.deployments[ingress].http or _has_engine(state, ingress.application)


def _takes_http(state: MeshState, key: DeploymentKey) -> bool:
    """Say whether a deployment does; before its first replica is there, by what its driver says.

    For one whose replicas are not started here it is unknown, and does not matter.
    """
    desired = state.deployments.get(key)
    if desired is None:
        return False
    if desired.services or desired.target is None:
        return desired.http
    target = desired.target
    is_coming = target.takes_http and not target.failed
    return desired.http or is_coming or target.options.is_scaled_to_zero


# Reads what a deploy says of scaling besides the options of its deployments.


def read_policy(request: control_pb2.DeployRequest) -> AutoscalingPolicy | None:
    """Return the policy that decides for the whole application, if there is one.

    Raises:
        OptionError: It cannot be one.
        UsageError: An external scaler decides, and a policy or an ``autoscaling_config`` too.
    """
    text = request.autoscaling_policy_json
    if request.external_scaler_enabled:
        scaled = [
            spec.name
            for spec in request.deployments
            if DeploymentOptions.from_peer(spec.options_json).scaling is not None
        ]
        if text or scaled:
            who = f"deployment {scaled[0]!r} has an" if scaled else "the application has an"
            what = "autoscaling_config" if scaled else "autoscaling_policy"
            raise UsageError(
                f"external_scaler_enabled: {who} {what}, and only one of both can decide how many "
                "replicas there are; leave one out"
            )
    if not text:
        return None
    try:
        policy = AutoscalingPolicy.of("autoscaling_policy", json.loads(text))
    except json.JSONDecodeError as error:
        raise OptionError(f"autoscaling_policy is not JSON: {error}") from error
    if not policy.policy_function:
        raise OptionError("autoscaling_policy has no policy_function; give 'module:name'")
    return policy
