"""The options of one deployment: names, defaults and checks, as a frozen value.

``DeploymentOptions`` is made from what a user wrote (``of``), changed with ``updated``, and
travels to the controller and the replica as JSON. Options that no part of the mesh acts upon
yet are accepted and checked all the same, so that a file stays valid.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from typing import ClassVar

from pyserve.config import unneeded
from pyserve.config.declared import check_options, declared
from pyserve.config.deployment import DeclaredOptions
from pyserve.config.launchers import check_pod_template
from pyserve.config.logging_config import LoggingConfig
from pyserve.config.parts import (
    REPLICAS_MAX,
    BackpressureConfig,
    BatchingConfig,
    Part,
    Resources,
    check_names,
)
from pyserve.config.placement import GangSchedulingConfig, read_actors
from pyserve.config.routing import DEFAULT_POLICY, RequestRouterConfig
from pyserve.config.runtime_env import (
    check_directory,
    check_environment,
    options_of_runtime_env,
    read_requirements,
)
from pyserve.config.scaling import AutoscalingConfig
from pyserve.config.validation import (
    check_choice,
    check_integer,
    check_json,
    check_mapping,
    check_number,
    check_text,
    check_text_mapping,
    refuse,
)
from pyserve.errors import OptionError, OptionTypeError

MAX_ONGOING_REQUESTS_DEFAULT = 100
# A router's own bound for max_queued_requests=-1, so that no queue is without one.
MAX_QUEUED_REQUESTS_PER_ROUTER = 10_000
PLACEMENT_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

OPTIONS = declared(DeclaredOptions)
PARTS: dict[str, type[Part]] = {
    "backpressure_config": BackpressureConfig,
    "batching_config": BatchingConfig,
    "autoscaling_config": AutoscalingConfig,
    "resources": Resources,
    "request_router_config": RequestRouterConfig,
    "logging_config": LoggingConfig,
    "gang_scheduling_config": GangSchedulingConfig,
}
# Accepted besides the fields, see ``_with_current_names``; with the types of the keywords.
OLDER_OPTIONS = {
    "ray_actor_options": "Mapping[str, Any] | None",
    "runtime_env": "Mapping[str, Any] | None",
    "max_concurrent_queries": "int",
    "version": "str | None",
}
_IN_ROUTER_CONFIG = "write request_router_config={'request_router_class': ..., ...}"
# Options that belong elsewhere, and where.
_ELSEWHERE = {
    "route_prefix": (
        "it is the application's: write pyserve.run(app, route_prefix=...), or route_prefix of an "
        "application in a file"
    ),
    "request_router_class": _IN_ROUTER_CONFIG,
    "request_router_kwargs": _IN_ROUTER_CONFIG,
}
# Names that the previous release does not have, by their part. They are sent only when given, since
# a controller of that release refuses names that it does not know.
_NEWER = {
    "resources": frozenset({"label_selector", "fallback_strategy"}),
    "request_router_config": frozenset(
        name for name, each in declared(RequestRouterConfig).items() if each.is_newer
    ),
}
_NAME_LENGTH_MAX = 63  # As of a label in DNS, which the names of pods must be.
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.\-]{{0,{_NAME_LENGTH_MAX - 1}}}\Z")


def check_name(field_name: str, value: object) -> str:
    """Return ``value`` if it may name an application or a deployment."""
    allowed = (
        "a letter or underscore, then letters, digits, '_', '-' or '.', "
        f"{_NAME_LENGTH_MAX} characters in all"
    )
    if not isinstance(value, str) or not _NAME.match(value):
        raise refuse(field_name, value, allowed, str)
    return value


def check_target(field_name: str, value: str) -> str:
    """Return ``value`` if it may name an application, or ``application/Deployment``."""
    for part in value.split("/", 1):
        if not _NAME.match(part):
            raise refuse(field_name, value, "an application, or 'application/Deployment'")
    return value


def check_replicas(options: Mapping[str, object]) -> None:
    """Refuse 0 where a user writes it in code, as Ray Serve does; a mesh itself may run none.

    Raises:
        OptionError: It is ``num_replicas=0``.
    """
    if options.get("num_replicas") == 0:
        raise OptionError(
            "num_replicas=0 is not allowed; allowed: a whole number, at least 1, or 'auto'; for "
            "none end the application with pyserve.delete"
        )


@dataclass(frozen=True, kw_only=True)
class DeploymentOptions(DeclaredOptions):
    """All options of one deployment; see ``docs/reference`` for each one's meaning.

    Raises:
        OptionError: a value is not allowed; the message names field, value and what is.
    """

    # Lines on given values that no option keeps; they do not travel.
    unkept: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("name", self.name)
        check_options("", self)
        self._check_counts()
        check_json("user_config", self.user_config)
        check_environment("env_vars", self.env_vars)
        if self.working_dir is not None:
            object.__setattr__(
                self, "working_dir", check_directory("working_dir", self.working_dir)
            )
        object.__setattr__(self, "pip", read_requirements("pip", self.pip))
        self._check_shares()
        check_text("serializer", self.serializer, "the name of a serializer, such as 'pickle'")
        self._check_placement()

    def _check_counts(self) -> None:
        if self.num_replicas == "auto":
            scaling = self.autoscaling_config
            filled = None if scaling is None else scaling.for_auto()
            object.__setattr__(self, "autoscaling_config", filled)
        else:
            check_integer(
                "num_replicas", self.num_replicas, minimum=0, maximum=REPLICAS_MAX, also="'auto'"
            )
            if self.num_replicas != 1 and self.autoscaling_config is not None:
                raise refuse(
                    "num_replicas",
                    self.num_replicas,
                    "'auto', or none beside autoscaling_config, whose min_replicas and "
                    "max_replicas bound it",
                )
        share = check_number(
            "rolling_update_percentage", self.rolling_update_percentage, minimum=0, exclusive=True
        )
        if share > 1:
            raise refuse("rolling_update_percentage", share, "a share above 0 and at most 1")

    def _check_placement(self) -> None:
        for bundle in _listed("placement_group_bundles", self.placement_group_bundles):
            for name, amount in check_mapping("placement_group_bundles", bundle).items():
                check_number(f"placement_group_bundles[{name!r}]", amount, minimum=0)
        check_choice(
            "placement_group_strategy", self.placement_group_strategy, PLACEMENT_STRATEGIES
        )
        selectors = self.placement_group_bundle_label_selector
        for selector in _listed("placement_group_bundle_label_selector", selectors):
            check_text_mapping("placement_group_bundle_label_selector", selector)
        if self.pod_template is not None:
            check_pod_template("pod_template", self.pod_template)
        if self.max_replicas_per_node is not None and self.placement_group_bundles:
            what = "none beside placement_group_bundles, as in Ray Serve"
            raise refuse("max_replicas_per_node", self.max_replicas_per_node, what)
        if self.gang_scheduling_config is not None:
            self._check_gangs(self.gang_scheduling_config)

    def _check_gangs(self, gangs: GangSchedulingConfig) -> None:
        gangs.check_counts(self.num_replicas, self.scaling)
        if self.max_replicas_per_node is not None:
            what = "none beside gang_scheduling_config, whose strategy says how replicas lie"
            raise refuse("max_replicas_per_node", self.max_replicas_per_node, what)
        if self.resources.fallback_strategy is not None:
            what = "none beside gang_scheduling_config, whose members are placed at once"
            raise refuse("resources.fallback_strategy", self.resources.fallback_strategy, what)
        if self.placement_group_strategy != "PACK":
            what = "PACK beside gang_scheduling_config, whose gang_placement_strategy counts"
            raise refuse("placement_group_strategy", self.placement_group_strategy, what)

    def _check_shares(self) -> None:
        for name, shares in (("traffic", self.traffic), ("mirror", self.mirror)):
            for target, share in check_mapping(name, shares).items():
                check_target(f"{name}[{target!r}]", target)
                if check_number(f"{name}[{target!r}]", share, minimum=0) > 1:
                    raise refuse(f"{name}[{target!r}]", share, "a share from 0 to 1")
            # A float's sum of ten tenths is a little off.
            if sum(shares.values()) > 1 + 1e-9:
                raise refuse(name, dict(shares), "shares that are at most 1 together")
            if shares and sum(shares.values()) == 0:
                raise refuse(name, dict(shares), "at least one share above 0, or none at all")

    @classmethod
    def of(cls, values: Mapping[str, object]) -> DeploymentOptions:
        """Make options from what a user wrote: nested mappings and older names are understood."""
        given = _with_current_names(dict(values))
        check_names("deployment", given, (item.name for item in fields(cls)), inner_options())
        _read_parts(given)
        made = cls(**given)  # type: ignore[arg-type]  # __post_init__ checks every value
        return _keeping(made, unneeded.lines_on_written(values))

    def updated(self, values: Mapping[str, object]) -> DeploymentOptions:
        """Return a copy in which ``values`` replace what was there; nested parts as a whole."""
        now = {item.name: getattr(self, item.name) for item in fields(self)}
        made = self.of(now | _with_current_names(dict(values)))
        return _keeping(made, (*self.unkept, *unneeded.lines_on_written(values)))

    def to_json(self) -> str:
        """Return every option but ``interceptors`` as JSON with sorted keys."""
        bare = copy(self)  # Not `replace`, which would check everything again.
        for name in ("interceptors", "deployment_actors"):
            object.__setattr__(bare, name, ())
        values = asdict(bare)
        del values["interceptors"], values["deployment_actors"]
        if self.deployment_actors:
            # Newer than the release before, like those of ``_NEWER``.
            values["deployment_actors"] = [{"name": each.name} for each in self.deployment_actors]
        for name, each in OPTIONS.items():
            if each.is_newer and values[name] is None:
                del values[name]
        for name in self.logging_config.unset:
            del values["logging_config"][name]
        for part, names in _NEWER.items():
            written = values[part]
            values[part] = {
                name: value
                for name, value in written.items()
                if value is not None or name not in names
            }
        # Defaults change between releases: each reader takes its own.
        if self.request_router_config.policy == DEFAULT_POLICY:
            del values["request_router_config"]["policy"]
        return json.dumps(values, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> DeploymentOptions:
        """Read what ``to_json`` wrote; names that are unknown raise ``OptionError``."""
        return cls.of(_mapping_of(text))

    @classmethod
    def from_peer(cls, text: str) -> DeploymentOptions:
        """Read what the ``to_json`` of another release wrote, without what only that one knows."""
        given = _mapping_of(text)
        known = {item.name for item in fields(cls)} | set(OLDER_OPTIONS)
        for name, part in PARTS.items():
            if isinstance(found := given.get(name), Mapping):
                given[name] = part.known(found)
        # Names had no bound before; the callers have the name from elsewhere.
        if len(str(given.get("name"))) > _NAME_LENGTH_MAX:
            del given["name"]
        return cls.of({name: value for name, value in given.items() if name in known})

    @property
    def user_config_json(self) -> str:
        """The ``user_config`` as JSON with sorted keys."""
        return json.dumps(self.user_config, sort_keys=True, allow_nan=False)

    @property
    def scaling(self) -> AutoscalingConfig | None:
        """How the number of replicas follows the load; ``None``: it does not."""
        if self.num_replicas == "auto" and self.autoscaling_config is None:
            return AutoscalingConfig().for_auto()
        return self.autoscaling_config

    @property
    def initial_num_replicas(self) -> int:
        """How many replicas to start with, before any autoscaling decision."""
        scaling = self.scaling
        if scaling is not None:
            return scaling.starts_with
        assert isinstance(self.num_replicas, int), "auto has a scaling"
        return self.num_replicas

    @property
    def gang_size(self) -> int:
        """How many replicas start, and end, together."""
        gangs = self.gang_scheduling_config
        return 1 if gangs is None else gangs.gang_size

    def whole_gangs(self, count: int) -> int:
        """Return the least number of replicas from ``count`` on that makes whole gangs."""
        gangs = self.gang_scheduling_config
        return count if gangs is None else gangs.whole(count)

    @property
    def is_scaled_to_zero(self) -> bool:
        """Whether it has zero replicas until another deploy changes that."""
        return self.num_replicas == 0 and self.autoscaling_config is None

    def ongoing_requests_limit(self, batch_capacity: int = 0, calls_held: int = 0) -> int:
        """Return how many requests a replica accepts at once.

        Args:
            batch_capacity: ``max_batch_size × max_concurrent_batches`` of the largest decorated
                method, 0 if there is none; ``batching_config`` is looked at in any case.
            calls_held: What a continuously batched class has running and waiting at most, 0 for
                others.
        """
        if self.max_ongoing_requests is not None:
            return self.max_ongoing_requests
        if self.batching_config is not None:
            own = self.batching_config.max_batch_size * self.batching_config.max_concurrent_batches
            batch_capacity = max(batch_capacity, own)
        # Twice: one batch runs while the next one fills.
        return max(MAX_ONGOING_REQUESTS_DEFAULT, 2 * batch_capacity, calls_held)

    @property
    def queued_requests_limit(self) -> int:
        """How many requests one router may park for this deployment."""
        if self.max_queued_requests == -1:
            return MAX_QUEUED_REQUESTS_PER_ROUTER
        return self.max_queued_requests

    @property
    def queue_full_status(self) -> int:
        """Status of plain HTTP for requests beyond that limit."""
        return (self.backpressure_config or BackpressureConfig()).status_code


@cache
def inner_options() -> Mapping[str, str]:
    """Return the names within options, which people write beside them, and where each belongs."""
    own = {item.name for item in fields(DeploymentOptions)}
    found: dict[str, str] = {}
    for option, part in PARTS.items():
        for name in part.__dataclass_fields__.keys() - own:
            found[name] = f"{found[name]} or {option!r}" if name in found else repr(option)
    return found


def described_options() -> str:
    """Return a line on each option with its default, for the docstring of the decorator."""
    lines = [
        f"``{name}`` ({each.default_text().replace('`', '')}): {each.brief()}"
        for name, each in OPTIONS.items()
    ]
    older = ", ".join(f"``{name}``" for name in OLDER_OPTIONS)
    return "\n            ".join([*lines, f"Ray Serve's names {older} are understood too."])


def _keeping(made: DeploymentOptions, lines: tuple[str, ...]) -> DeploymentOptions:
    if lines:
        object.__setattr__(made, "unkept", tuple(dict.fromkeys(lines)))
    return made


def _mapping_of(text: str) -> dict[str, object]:
    try:
        values = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise OptionError(f"the deployment options are not JSON: {error}") from error
    return check_mapping("deployment options", values)


def _with_current_names(given: dict[str, object]) -> dict[str, object]:
    if "max_concurrent_queries" in given:
        warnings.warn(
            "max_concurrent_queries is an older name; write max_ongoing_requests",
            DeprecationWarning,
            stacklevel=4,
        )
        given.setdefault("max_ongoing_requests", given.pop("max_concurrent_queries"))
        given.pop("max_concurrent_queries", None)
    if given.pop("version", None) is not None:
        warnings.warn(
            "version is not needed: the mesh tells versions apart by their code and options",
            DeprecationWarning,
            stacklevel=4,
        )
    for name, place in _ELSEWHERE.items():
        if name in given:
            raise OptionTypeError(f"{name} is no option of a deployment: {place}")
    if "ray_actor_options" in given:
        found = given.pop("ray_actor_options")
        actor = check_mapping("ray_actor_options", {} if found is None else found)
        given.setdefault("runtime_env", actor.pop("runtime_env", None))
        given.setdefault("resources", actor)
    for name, value in options_of_runtime_env(
        "runtime_env", given.pop("runtime_env", None)
    ).items():
        given.setdefault(name, value)
    return given


def _read_parts(given: dict[str, object]) -> None:
    for name, part in PARTS.items():
        if given.get(name) is not None:
            read = LoggingConfig.read if part is LoggingConfig else partial(part.of, name)
            given[name] = read(given[name])
        elif name in given and name in {"resources", "request_router_config"}:
            del given[name]  # None: the default
    for name, each in OPTIONS.items():
        if each.none_is_default and name in given and given[name] is None:
            del given[name]
    interceptors = given.get("interceptors", ())
    if not isinstance(interceptors, Sequence) or isinstance(interceptors, str | bytes):
        raise refuse("interceptors", interceptors, "a list of server interceptors", list)
    given["interceptors"] = tuple(interceptors)
    given["deployment_actors"] = read_actors(given.get("deployment_actors"))


def _listed(name: str, value: object) -> Sequence[object]:
    if value is not None and not isinstance(value, list | tuple):
        raise refuse(name, value, "a list of mappings, one for each bundle", list)
    return value or ()
