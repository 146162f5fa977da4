"""How routers pick replicas: what a deployment says, and what the environment says for the rest.

Whatever a deployment leaves out is decided by the process that has the router, from its own
environment; the names of Ray Serve are understood in both places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial

from pyserve.config import variables as read
from pyserve.config.declared import (
    Flag,
    Number,
    Reader,
    Seconds,
    Value,
    Variable,
    Whole,
    aliases,
    check_options,
    declared,
    documented,
    option,
    router_option,
    variables_of,
)
from pyserve.config.parts import Part
from pyserve.config.validation import (
    check_choice,
    check_json,
    check_mapping,
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
# What nobody reaches in a fleet of a thousand replicas.
_LOAD_BOUND_MAX = 1_000.0
# Classes that Ray Serve has, by what stands for them here.
_RAY_POLICIES = {
    "PowerOfTwoChoicesRequestRouter": "p2c",
    "RoundRobinRouter": "round_robin",
    "RoundRobinRequestRouter": "round_robin",
    "ConsistentHashRouter": "consistent_hash",
    "ConsistentHashRequestRouter": "consistent_hash",
    "PrefixCacheAffinityRouter": "pyserve.llm.request_router:PrefixCacheAffinityRouter",
    "KVAwareRouter": "pyserve.llm.request_router:KVAwareRouter",
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
_ATTEMPTS = Whole(minimum=1, maximum=ATTEMPTS_MAX)
_MULTIPLIER = Number(minimum=1, maximum=100.0)
_IMPORT_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_OWNER = "request_router_config"


_BACKOFF = Seconds(maximum=_TIME_S_MAX, exclusive=True)


def _count(minimum: int) -> Reader:
    def reader(variables: Mapping[str, str], name: str, default: int) -> int:
        found = read.whole(variables, name, minimum=minimum, maximum=ATTEMPTS_MAX - 1)
        return default if found is None else found

    return reader


def _switch(variables: Mapping[str, str], name: str, default: bool) -> bool:
    return read.switch(variables, name, default=default)


@documented
@dataclass(frozen=True, kw_only=True)
class RequestRouterConfig(Part):
    """How the calls of one deployment are routed. ``None``: as the router's environment says.

    Ray Serve's ``request_router_class`` and ``request_router_kwargs`` are other names of ``policy``
    and ``policy_kwargs``; its own classes stand for ours.
    """

    policy: str = option(
        DEFAULT_POLICY,
        '`"late_binding"` (the fewest calls; where replicas work on one call at a time, calls wait '
        'for the first free one), `"least"` (the fewest calls), `"predicted"` (who is expected to '
        'be done first), `"p2c"` (two at random, the less loaded one), `"round_robin"`, or '
        '`"consistent_hash"` (by session)',
    )
    policy_kwargs: Mapping[str, object] = option(
        None,
        "arguments for the constructor of [a class of yours](#a-policy-of-your-own)",
        factory=dict,
    )
    load_bound: float = router_option(
        DEFAULT_LOAD_BOUND,
        'for `"consistent_hash"`: how many times the mean of the calls in flight a replica may '
        "have of late; 1000 is no bound",
        Number(minimum=1, maximum=_LOAD_BOUND_MAX, exclusive=True),
    )
    prefer_local_node: bool | None = router_option(
        None,
        "replicas on the router's node first; by default the ingress does so, and handles do not",
        Flag(),
        wire="prefer_node",
        variable=Variable(
            name="PYSERVE_INGRESS_PREFER_LOCAL_NODE",
            alias="RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING",
            default=True,
            read=_switch,
            text="the ingress prefers replicas on its node; handles ask for it with "
            "`_prefer_local_routing`",
        ),
    )
    prefer_local_zone: bool | None = router_option(
        None,
        "replicas in the router's zone before farther ones",
        Flag(),
        wire="prefer_zone",
        variable=Variable(
            name="PYSERVE_PREFER_LOCAL_ZONE",
            alias="RAY_SERVE_PROXY_PREFER_LOCAL_AZ_ROUTING",
            default=True,
            read=_switch,
            text="ingress and handles prefer replicas in their zone",
        ),
    )
    initial_backoff_s: float | None = router_option(
        None,
        "how long a replica that has refused a call is left alone",
        _BACKOFF,
        variable=Variable(
            name="PYSERVE_ROUTER_INITIAL_BACKOFF_S",
            alias="RAY_SERVE_ROUTER_RETRY_INITIAL_BACKOFF_S",
            default=0.025,
            read=partial(read.seconds, exclusive=True),
        ),
    )
    backoff_multiplier: float | None = router_option(
        None,
        "how much longer after each further refusal",
        _MULTIPLIER,
        variable=Variable(
            name="PYSERVE_ROUTER_BACKOFF_MULTIPLIER",
            alias="RAY_SERVE_ROUTER_RETRY_BACKOFF_MULTIPLIER",
            default=2.0,
            read=partial(read.number, minimum=1),
        ),
    )
    max_backoff_s: float | None = router_option(
        None,
        "the longest such time",
        _BACKOFF,
        variable=Variable(
            name="PYSERVE_ROUTER_MAX_BACKOFF_S",
            alias="RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S",
            default=0.5,
            read=read.seconds,
        ),
    )
    slow_start_s: float = router_option(
        0.0,
        "how long a new replica takes to get its full share",
        Seconds(maximum=_TIME_S_MAX),
    )
    max_attempts: int | None = router_option(
        None,
        "how often a call is sent that may be repeated; 1: once",
        _ATTEMPTS,
        wire="retry_attempts_max",
        variable=Variable(
            name="PYSERVE_ROUTER_MAX_RETRIES",
            alias="RAY_SERVE_HTTP_REQUEST_MAX_RETRIES",
            default=0,
            read=_count(0),
            text="attempts after the first of a call that may be repeated",
        ),
    )
    retry_budget_percent: int = router_option(
        20,
        "calls that are sent again, in a hundred",
        Whole(minimum=0, maximum=100),
    )
    retryable_status_codes: tuple[str, ...] = option(
        (),
        "answers after which a call that may be repeated is sent again; gRPC's names, in a list",
        shown="`UNAVAILABLE`, `RESOURCE_EXHAUSTED`",
    )
    hedging: bool = router_option(
        False,
        "whether a slow call that may be repeated is sent to a second replica",
        Flag(),
    )
    ejection_fall: int | None = router_option(
        None,
        "failures in a row that put a replica out; 0: never",
        Whole(minimum=0),
        variable=Variable(
            name="PYSERVE_EJECTION_FALL",
            alias="RAY_SERVE_HAPROXY_HEALTH_CHECK_FALL",
            default=5,
            read=_count(0),
        ),
    )
    ejection_rise: int | None = router_option(
        None,
        "good answers in a row that bring it back",
        Whole(minimum=1),
        variable=Variable(
            name="PYSERVE_EJECTION_RISE",
            alias="RAY_SERVE_HAPROXY_HEALTH_CHECK_RISE",
            default=2,
            read=_count(1),
        ),
    )
    ejection_interval_s: float | None = router_option(
        None,
        "how long it is out for the first time; twice as long each further time",
        _BACKOFF,
        variable=Variable(
            name="PYSERVE_EJECTION_INTERVAL_S",
            alias="RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER",
            default=5.0,
            read=read.duration_seconds,
            text="how long it is out for the first time; also with a unit, `5s` or `250ms`",
        ),
    )
    ejection_max_percent: int | None = router_option(
        None,
        "how many of the replicas, in a hundred, may be out at once for their failures; of two or "
        "more, one always may",
        Whole(minimum=0, maximum=100),
        shown="50",
        is_newer=True,
    )
    request_routing_stats_period_s: float = option(
        10.0,
        "how often a replica's [`record_routing_stats`](#what-replicas-report) is asked",
        Seconds(exclusive=True),
    )
    request_routing_stats_timeout_s: float = option(
        30.0, "how long it may take", Seconds(exclusive=True)
    )
    request_router_class: InitVar[str | type | None] = None
    request_router_kwargs: InitVar[Mapping[str, object] | None] = None

    def __post_init__(
        self,
        request_router_class: str | type | None,
        request_router_kwargs: Mapping[str, object] | None,
    ) -> None:
        self._take_router_class(request_router_class, request_router_kwargs)
        self._check_policy()
        check_options(f"{_OWNER}.", self)
        self._check_load_bound()
        self._check_backoffs()
        codes = _check_codes(f"{_OWNER}.retryable_status_codes", self.retryable_status_codes)
        object.__setattr__(self, "retryable_status_codes", codes)

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
        policy = "consistent_hash"
        if self.load_bound != DEFAULT_LOAD_BOUND and self.policy != policy:
            allowed = f"none for {self.policy!r}; it is for policy={policy!r}"
            raise refuse(f"{_OWNER}.load_bound", self.load_bound, allowed)

    def _check_backoffs(self) -> None:
        first, longest = self.initial_backoff_s, self.max_backoff_s
        if first is not None and longest is not None and longest < first:
            raise refuse(
                f"{_OWNER}.max_backoff_s", longest, f"at least initial_backoff_s={first:g}"
            )

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
        kwargs = None if ours in POLICIES else kwargs
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
    for tier, name in (("node", "prefer_local_node"), ("zone", "prefer_local_zone")):
        if given.setdefault(name, tier in tiers) is not (tier in tiers):
            raise refuse(f"{_OWNER}.tiers", tiers, f"what {name}={given[name]!r} says too")


def _read_retry_policy(given: dict[str, object]) -> None:
    """Read ``retryPolicy`` as a gRPC service config has it."""
    owner = f"{_OWNER}.retryPolicy"
    known: Mapping[str, tuple[str, Callable[[str, object], object]]] = {
        "maxAttempts": ("max_attempts", _ATTEMPTS),
        "initialBackoff": ("initial_backoff_s", _proto_seconds),
        "maxBackoff": ("max_backoff_s", _proto_seconds),
        "backoffMultiplier": ("backoff_multiplier", _MULTIPLIER),
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


# How long a call waits for a replica that has its model; no deployment says it.
_MODEL_MATCHING = Variable(
    name="PYSERVE_MODEL_MATCHING_TIMEOUT_S",
    alias="RAY_SERVE_MULTIPLEXED_MODEL_ID_MATCHING_TIMEOUT_S",
    default=1.0,
    read=read.seconds,
    text="how long a call waits for a replica that has its model, while others have room",
)
OPTIONS = declared(RequestRouterConfig)
# By the options that they are the defaults of.
VARIABLES = variables_of(RequestRouterConfig) | {"model_matching_timeout_s": _MODEL_MATCHING}
ALIASES = aliases(VARIABLES.values())

RouterDefaults = dict[str, Value]
"""What routers of a process do where a deployment does not say it, by the names of its options."""


def read_router_defaults(variables: Mapping[str, str]) -> RouterDefaults:
    """Read what the environment says; the names of Ray Serve have been replaced before.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    found = {
        name: variable.read(variables, variable.name, variable.default)
        for name, variable in VARIABLES.items()
    }
    found["max_attempts"] += 1  # The variable counts those after the first.
    first, longest = VARIABLES["initial_backoff_s"], VARIABLES["max_backoff_s"]
    if found["max_backoff_s"] < found["initial_backoff_s"]:
        if variables.get(longest.name):
            allowed = f"at least {first.name}={found['initial_backoff_s']:g}"
            raise refuse(longest.name, found["max_backoff_s"], allowed)
        found["max_backoff_s"] = found["initial_backoff_s"]
    return found


def policy_kwargs_json(config: RequestRouterConfig) -> str:
    """Return the arguments of a policy of the user's, as they travel to routers."""
    return json.dumps(dict(config.policy_kwargs), sort_keys=True) if config.policy_kwargs else ""
