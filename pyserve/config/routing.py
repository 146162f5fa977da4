"""How routers pick replicas: what a deployment says, and what the environment says for the rest.

Whatever a deployment leaves out is decided by the process that has the router, from its own
environment; the names of Ray Serve are understood in both places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field

from pyserve.config import variables as read
from pyserve.config.parts import Part
from pyserve.config.validation import (
    check_choice,
    check_flag,
    check_integer,
    check_json,
    check_mapping,
    check_number,
    check_seconds,
    check_text,
    refuse,
)
from pyserve.errors import OptionError, OptionTypeError

# docs/concepts/routing.md says why.
DEFAULT_POLICY = "late_binding"
POLICIES = ("late_binding", "least", "p2c", "predicted", "round_robin", "consistent_hash")
# The mean plus a quarter: measured with caches (docs/concepts/routing.md).
DEFAULT_LOAD_BOUND = 1.25
# From near to far. The last one is always there and need not be written.
TIERS = ("node", "zone", "any")
ATTEMPTS_MAX = 100
# A day. Backoffs, ejections and slow starts that are longer would keep replicas out for good.
_TIME_S_MAX = 86_400.0
_MULTIPLIER_MAX = 100.0
# What nobody reaches in a fleet of a thousand replicas.
_LOAD_BOUND_MAX = 1_000.0
# What Ray Serve calls the same settings.
ALIASES = {
    "PYSERVE_ROUTER_INITIAL_BACKOFF_S": "RAY_SERVE_ROUTER_RETRY_INITIAL_BACKOFF_S",
    "PYSERVE_ROUTER_BACKOFF_MULTIPLIER": "RAY_SERVE_ROUTER_RETRY_BACKOFF_MULTIPLIER",
    "PYSERVE_ROUTER_MAX_BACKOFF_S": "RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S",
    "PYSERVE_INGRESS_PREFER_LOCAL_NODE": "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING",
    "PYSERVE_PREFER_LOCAL_ZONE": "RAY_SERVE_PROXY_PREFER_LOCAL_AZ_ROUTING",
    "PYSERVE_MODEL_MATCHING_TIMEOUT_S": "RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S",
    "PYSERVE_ROUTER_MAX_RETRIES": "RAY_SERVE_HTTP_REQUEST_MAX_RETRIES",
    "PYSERVE_EJECTION_FALL": "RAY_SERVE_HAPROXY_HEALTH_CHECK_FALL",
    "PYSERVE_EJECTION_RISE": "RAY_SERVE_HAPROXY_HEALTH_CHECK_RISE",
    "PYSERVE_EJECTION_INTERVAL_S": "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER",
}
# Classes that Ray Serve has, by what stands for them here.
_RAY_POLICIES = {
    "PowerOfTwoChoicesRequestRouter": "p2c",
    "RoundRobinRouter": "round_robin",
    "RoundRobinRequestRouter": "round_robin",
    "ConsistentHashRouter": "consistent_hash",
    "ConsistentHashRequestRouter": "consistent_hash",
}
# What gRPC calls an answer that is a failure, in the order of its numbers, which begin with 1.
STATUS_CODES = (
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_OWNER = "request_router_config"


@dataclass(frozen=True, kw_only=True)
class RequestRouterConfig(Part):
    """How the calls of one deployment are routed. ``None``: as the router's environment says.

    Attributes:
        policy: who is picked: a name of ``POLICIES``, or a class or its import path.
        policy_kwargs: arguments for that class.
        load_bound: of ``"consistent_hash"``: how many times the mean of the calls in flight a
            replica may have of late, above 1; near it sessions move away. For a moment it may have
            three standard deviations more, as chance would have it.
        prefer_local_node: replicas on the router's node first; ``None``: for the ingress only.
        prefer_local_zone: replicas in its zone before farther ones.
        initial_backoff_s: how long a replica that has refused a call is left alone.
        backoff_multiplier: how much longer after each further refusal.
        max_backoff_s: the longest such time.
        slow_start_s: how long a new replica takes to get its full share.
        max_attempts: how often a call is sent that may be repeated; 1: once.
        retry_budget_percent: repeated and hedged calls in a hundred.
        retryable_status_codes: names of gRPC's codes; a call that may be repeated is, when one of
            them is its answer and nothing was said before. Empty: UNAVAILABLE, RESOURCE_EXHAUSTED.
        hedging: whether a slow call that may be repeated is sent to a second replica.
        ejection_fall: failures in a row after which a replica is left out; 0: never.
        ejection_rise: good answers in a row that make it whole again.
        ejection_interval_s: how long it is left out for the first time; doubles each time.
        request_routing_stats_period_s: how often a replica's ``record_routing_stats`` is asked,
            for a policy that is a class.
        request_routing_stats_timeout_s: how long it may take.
        request_router_class: what Ray Serve calls ``policy``; its own classes stand for ours.
        request_router_kwargs: what it calls ``policy_kwargs``.
    """

    policy: str = DEFAULT_POLICY
    policy_kwargs: Mapping[str, object] = field(default_factory=dict)
    load_bound: float = DEFAULT_LOAD_BOUND
    prefer_local_node: bool | None = None
    prefer_local_zone: bool | None = None
    initial_backoff_s: float | None = None
    backoff_multiplier: float | None = None
    max_backoff_s: float | None = None
    slow_start_s: float = 0.0
    max_attempts: int | None = None
    retry_budget_percent: int = 20
    retryable_status_codes: tuple[str, ...] = ()
    hedging: bool = False
    ejection_fall: int | None = None
    ejection_rise: int | None = None
    ejection_interval_s: float | None = None
    request_routing_stats_period_s: float = 10.0
    request_routing_stats_timeout_s: float = 30.0
    request_router_class: InitVar[str | type | None] = None
    request_router_kwargs: InitVar[Mapping[str, object] | None] = None

    def __post_init__(
        self,
        request_router_class: str | type | None,
        request_router_kwargs: Mapping[str, object] | None,
    ) -> None:
        self._take_router_class(request_router_class, request_router_kwargs)
        self._check_policy()
        self._check_load_bound()
        for name in ("prefer_local_node", "prefer_local_zone"):
            if getattr(self, name) is not None:
                check_flag(f"{_OWNER}.{name}", getattr(self, name))
        check_flag(f"{_OWNER}.hedging", self.hedging)
        self._check_times()
        if self.max_attempts is not None:
            _check_attempts(f"{_OWNER}.max_attempts", self.max_attempts)
        check_integer(
            f"{_OWNER}.retry_budget_percent", self.retry_budget_percent, minimum=0, maximum=100
        )
        self._check_codes()
        if self.ejection_fall is not None:
            check_integer(f"{_OWNER}.ejection_fall", self.ejection_fall, minimum=0)
        if self.ejection_rise is not None:
            check_integer(f"{_OWNER}.ejection_rise", self.ejection_rise, minimum=1)

    @property
    def policy_path(self) -> str:
        """The import path of the policy's class; ``""``: it is one of ours."""
        return self.policy if ":" in self.policy else ""

    def _take_router_class(
        self, router_class: str | type | None, kwargs: Mapping[str, object] | None
    ) -> None:
        given: dict[str, object] = {
            "request_router_class": router_class,
            "request_router_kwargs": kwargs,
        }
        if self.policy != DEFAULT_POLICY:
            given["policy"] = self.policy
        if self.policy_kwargs:
            given["policy_kwargs"] = self.policy_kwargs
        for name, value in self._rename(given).items():
            object.__setattr__(self, name, value)

    def _check_policy(self) -> None:
        allowed = "an import path 'module:Class'"
        # A colon marks an import path.
        if ":" not in check_text(f"{_OWNER}.policy", self.policy):
            check_choice(f"{_OWNER}.policy", self.policy, POLICIES, also=allowed)
        elif not _IMPORT_PATH.match(self.policy):
            raise refuse(f"{_OWNER}.policy", self.policy, allowed)
        check_json(
            f"{_OWNER}.policy_kwargs", check_mapping(f"{_OWNER}.policy_kwargs", self.policy_kwargs)
        )
        if self.policy_kwargs and not self.policy_path:
            raise refuse(
                f"{_OWNER}.policy_kwargs",
                dict(self.policy_kwargs),
                f"none for {self.policy!r}; they are for a policy of your own, {allowed}",
            )

    def _check_load_bound(self) -> None:
        option, policy = f"{_OWNER}.load_bound", "consistent_hash"
        check_number(option, self.load_bound, minimum=1, maximum=_LOAD_BOUND_MAX, exclusive=True)
        if self.load_bound != DEFAULT_LOAD_BOUND and self.policy != policy:
            allowed = f"none for {self.policy!r}; it is for policy={policy!r}"
            raise refuse(option, self.load_bound, allowed)

    def _check_codes(self) -> None:
        codes = _check_codes(f"{_OWNER}.retryable_status_codes", self.retryable_status_codes)
        object.__setattr__(self, "retryable_status_codes", codes)

    def _check_times(self) -> None:
        for name in ("initial_backoff_s", "max_backoff_s", "ejection_interval_s"):
            if getattr(self, name) is not None:
                check_seconds(
                    f"{_OWNER}.{name}", getattr(self, name), maximum=_TIME_S_MAX, exclusive=True
                )
        if self.backoff_multiplier is not None:
            _check_multiplier(f"{_OWNER}.backoff_multiplier", self.backoff_multiplier)
        first, longest = self.initial_backoff_s, self.max_backoff_s
        if first is not None and longest is not None and longest < first:
            raise refuse(
                f"{_OWNER}.max_backoff_s", longest, f"at least initial_backoff_s={first:g}"
            )
        check_seconds(f"{_OWNER}.slow_start_s", self.slow_start_s, maximum=_TIME_S_MAX)
        for name in ("request_routing_stats_period_s", "request_routing_stats_timeout_s"):
            check_seconds(f"{_OWNER}.{name}", getattr(self, name), exclusive=True)

    @classmethod
    def _rename(cls, given: dict[str, object]) -> dict[str, object]:
        _read_router_class(given)
        if isinstance(given.get("policy"), type):
            given["policy"] = _path_of(f"{_OWNER}.policy", given["policy"])
        if "tiers" in given:
            _read_tiers(given)
        if "retryPolicy" in given:
            _read_retry_policy(given)
        return given


def _check_attempts(option: str, value: object) -> int:
    return check_integer(option, value, minimum=1, maximum=ATTEMPTS_MAX)


def _check_multiplier(option: str, value: object) -> float:
    return check_number(option, value, minimum=1, maximum=_MULTIPLIER_MAX)


def _check_codes(option: str, codes: object) -> tuple[str, ...]:
    if not isinstance(codes, list | tuple):
        raise refuse(option, codes, "a list of gRPC's status codes, such as ['UNAVAILABLE']", list)
    return tuple(check_choice(option, code, STATUS_CODES) for code in codes)


def _read_router_class(given: dict[str, object]) -> None:
    """Read Ray Serve's ``request_router_class`` and ``request_router_kwargs``."""
    found = given.pop("request_router_class", None)
    kwargs = given.pop("request_router_kwargs", None)
    if found is not None:
        if "policy" in given:
            raise OptionError(
                f"{_OWNER} has both policy and request_router_class, which are two names of one "
                "option; keep policy"
            )
        path = _path_of(f"{_OWNER}.request_router_class", found)
        module, _, name = path.replace(":", ".").rpartition(".")
        # Their own pages name them both ways.
        is_theirs = not module or module.startswith("ray.")
        ours = _RAY_POLICIES.get(name) if is_theirs else None
        if ours is None and is_theirs:
            raise refuse(
                f"{_OWNER}.request_router_class",
                path,
                f"{', '.join(_RAY_POLICIES)} of Ray Serve, or a class of your own, 'module:Class'",
            )
        given["policy"] = ours or f"{module}:{name}"
        # Theirs tune what ours has no need of, such as the number of virtual nodes.
        kwargs = None if ours else kwargs
    if kwargs:
        given.setdefault("policy_kwargs", kwargs)


def _path_of(option: str, value: object) -> str:
    """Return the import path of a class, or the one that was written."""
    if isinstance(value, str):
        return value
    if not isinstance(value, type) or "<" in value.__qualname__:
        raise refuse(option, value, "a class that its module has, or 'module:Class'", type)
    if value.__module__ == "__main__":
        raise refuse(option, value, "a class of an importable module, since routers import it")
    return f"{value.__module__}:{value.__qualname__}"


def _read_tiers(given: dict[str, object]) -> None:
    """Read ``tiers``: which near replicas come first, as a list of names."""
    tiers = given.pop("tiers")
    if not isinstance(tiers, list | tuple):
        raise refuse(f"{_OWNER}.tiers", tiers, f"a list of {', '.join(map(repr, TIERS))}", list)
    for tier in tiers:
        check_choice(f"{_OWNER}.tiers", tier, TIERS)
    if [TIERS.index(tier) for tier in tiers] != sorted({TIERS.index(tier) for tier in tiers}):
        raise refuse(f"{_OWNER}.tiers", tiers, "each tier once, from near to far")
    for tier, option in (("node", "prefer_local_node"), ("zone", "prefer_local_zone")):
        if given.setdefault(option, tier in tiers) is not (tier in tiers):
            raise refuse(f"{_OWNER}.tiers", tiers, f"what {option}={given[option]!r} says too")


def _read_retry_policy(given: dict[str, object]) -> None:
    """Read ``retryPolicy`` as a gRPC service config has it."""
    owner = f"{_OWNER}.retryPolicy"
    known: Mapping[str, tuple[str, Callable[[str, object], object]]] = {
        "maxAttempts": ("max_attempts", _check_attempts),
        "initialBackoff": ("initial_backoff_s", _proto_seconds),
        "maxBackoff": ("max_backoff_s", _proto_seconds),
        "backoffMultiplier": ("backoff_multiplier", _check_multiplier),
        "retryableStatusCodes": ("retryable_status_codes", _some_codes),
    }
    for name, value in check_mapping(owner, given.pop("retryPolicy")).items():
        if name not in known:
            raise OptionTypeError(f"{owner} has no option {name!r}; known: {', '.join(known)}")
        own_name, read_value = known[name]
        if given.get(own_name):
            raise OptionError(
                f"{_OWNER} has both retryPolicy.{name}={value!r} and {own_name}="
                f"{given[own_name]!r}, which are two names of one option; keep {own_name}"
            )
        given[own_name] = read_value(f"{owner}.{name}", value)


def _some_codes(option: str, value: object) -> tuple[str, ...]:
    if not value:
        raise refuse(option, value, "at least one code, as gRPC wants it")
    return _check_codes(option, value)


def _proto_seconds(option: str, value: object) -> float:
    allowed = f"seconds with an 's', such as '0.1s', above 0 and at most {_TIME_S_MAX:.0f}"
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?s", value):
        raise refuse(option, value, allowed)
    time_s = float(value[:-1])
    if not 0 < time_s <= _TIME_S_MAX:
        raise refuse(option, value, allowed)
    return time_s


@dataclass(frozen=True, kw_only=True)
class RouterDefaults:
    """The defaults of a router for options that a deployment does not set.

    Attributes:
        prefer_local_node: of an ingress; handles have to ask for it.
        prefer_local_zone: of both.
        initial_backoff_s: as in ``RequestRouterConfig``, like those that follow.
        backoff_multiplier: see there.
        max_backoff_s: see there.
        model_matching_timeout_s: how long a call waits for a replica that has its model, while
            others have room.
        max_attempts: see there.
        ejection_fall: see there.
        ejection_rise: see there.
        ejection_interval_s: see there.
    """

    prefer_local_node: bool = True
    prefer_local_zone: bool = True
    initial_backoff_s: float = 0.025
    backoff_multiplier: float = 2.0
    max_backoff_s: float = 0.5
    model_matching_timeout_s: float = 1.0
    max_attempts: int = 1
    ejection_fall: int = 5
    ejection_rise: int = 2
    ejection_interval_s: float = 5.0


def read_router_defaults(variables: Mapping[str, str]) -> RouterDefaults:
    """Read what the environment says; the names of Ray Serve have been replaced before.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    default = RouterDefaults()
    initial_s = read.seconds(
        variables,
        "PYSERVE_ROUTER_INITIAL_BACKOFF_S",
        default.initial_backoff_s,
        exclusive=True,
    )
    max_s = read.seconds(
        variables, "PYSERVE_ROUTER_MAX_BACKOFF_S", max(default.max_backoff_s, initial_s)
    )
    if max_s < initial_s:
        raise refuse(
            "PYSERVE_ROUTER_MAX_BACKOFF_S",
            max_s,
            f"at least PYSERVE_ROUTER_INITIAL_BACKOFF_S={initial_s:g}",
        )
    retries = _count(variables, "PYSERVE_ROUTER_MAX_RETRIES", default.max_attempts - 1)
    return RouterDefaults(
        prefer_local_node=read.switch(
            variables, "PYSERVE_INGRESS_PREFER_LOCAL_NODE", default=default.prefer_local_node
        ),
        prefer_local_zone=read.switch(
            variables, "PYSERVE_PREFER_LOCAL_ZONE", default=default.prefer_local_zone
        ),
        initial_backoff_s=initial_s,
        backoff_multiplier=read.number(
            variables, "PYSERVE_ROUTER_BACKOFF_MULTIPLIER", default.backoff_multiplier, minimum=1
        ),
        max_backoff_s=max_s,
        model_matching_timeout_s=read.seconds(
            variables, "PYSERVE_MODEL_MATCHING_TIMEOUT_S", default.model_matching_timeout_s
        ),
        max_attempts=retries + 1,
        ejection_fall=_count(variables, "PYSERVE_EJECTION_FALL", default.ejection_fall),
        ejection_rise=_count(variables, "PYSERVE_EJECTION_RISE", default.ejection_rise, minimum=1),
        ejection_interval_s=read.duration_seconds(
            variables, "PYSERVE_EJECTION_INTERVAL_S", default.ejection_interval_s
        ),
    )


def _count(variables: Mapping[str, str], name: str, default: int, *, minimum: int = 0) -> int:
    found = read.whole(variables, name, minimum=minimum, maximum=ATTEMPTS_MAX - 1)
    return default if found is None else found


def policy_kwargs_json(config: RequestRouterConfig) -> str:
    """Return the arguments of a policy of the user's, as they travel to routers."""
    return json.dumps(dict(config.policy_kwargs), sort_keys=True) if config.policy_kwargs else ""
