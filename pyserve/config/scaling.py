"""How the number of replicas follows the load: options and policies' context, as in Ray Serve.

The decisions are made in ``pyserve.control.autoscaling``.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from pyserve.config.parts import REPLICAS_MAX, Part
from pyserve.config.validation import (
    check_choice,
    check_flag,
    check_integer,
    check_json,
    check_mapping,
    check_number,
    check_seconds,
    refuse,
)
from pyserve.types import ReplicaId

# Of ``num_replicas="auto"``, as in Ray Serve.
AUTO_MAX_REPLICAS = 100
# Ray Serve's own.
DOWNSCALE_DELAY_S = 600.0


class _Unset(int):
    """A default that nobody has written: ``"auto"`` has another one."""


class AggregationFunction(enum.StrEnum):
    """How the measurements of a time become one number."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, kw_only=True)
class AutoscalingPolicy(Part):
    """Who decides how many replicas there are; without one the load does.

    Attributes:
        policy_function: A function or a class, or its import path; kept as the path. It runs in
            the controller's process, which imports it from where the driver finds modules.
        policy_kwargs: Arguments for the constructor of a class.
    """

    policy_function: str | Callable[..., object] = ""
    policy_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = self.policy_function
        if callable(found) and hasattr(found, "__qualname__"):
            path = f"{found.__module__}:{found.__qualname__}"
            if "<" in path or path.startswith("__main__:"):
                allowed = "a function or a class that a module has, for the controller to import"
                raise refuse("autoscaling_config.policy.policy_function", path, allowed)
            object.__setattr__(self, "policy_function", path)
        elif not isinstance(found, str):
            allowed = "a function, a class, or its import path 'module:name'"
            raise refuse("autoscaling_config.policy.policy_function", found, allowed, str)
        elif found and not _is_import_path(found):
            raise refuse("autoscaling_config.policy.policy_function", found, "'module:name'")
        check_json(
            "autoscaling_config.policy.policy_kwargs",
            check_mapping("autoscaling_config.policy.policy_kwargs", self.policy_kwargs),
        )


_STEP_TARGETS = ("target_ongoing_cost", "target_time_to_first_value_s", "target_time_per_value_s")
# Older names of Ray Serve, and the present ones.
_OLDER_FACTORS = {
    "smoothing_factor": ("upscaling_factor", "downscaling_factor"),
    "upscale_smoothing_factor": ("upscaling_factor",),
    "downscale_smoothing_factor": ("downscaling_factor",),
}


@dataclass(frozen=True, kw_only=True)
class AutoscalingConfig(Part):
    """When and how far the number of replicas follows the load (names as in Ray Serve).

    ``smoothing_factor`` and its relatives are older names of the scaling factors;
    ``metrics_interval_s`` is accepted: the mesh measures on its own time. All of them warn.

    Attributes:
        min_replicas, max_replicas: Bounds of the number; from 0 replicas a call waits for one.
        initial_replicas: How many a first deploy starts; None: ``min_replicas``. At least one
            starts in any case, so that it is known what the deployment serves.
        target_ongoing_requests: How many calls a replica shall have at once. With a target for
            the latency: how many it works on at once without getting slower.
        look_back_period_s: What shrinking is decided upon; growing looks back as long as
            ``upscale_delay_s``, but at least half a second and at most this long.
        upscale_delay_s, downscale_delay_s: How long a number must have been too small, or too
            large, before it changes. Ray Serve waits 30 s before it grows; 600 s before it
            shrinks are the same, but with a target for the latency it is as long as a replica
            takes to start, and at least 10 s.
        downscale_to_zero_delay_s: The same from 1 to 0; None: ``downscale_delay_s``.
        upscaling_factor, downscaling_factor: What part of a difference is made up for at once.
        aggregation_function: What is made of the numbers of calls in those times.
        policy: Who decides instead.
        target_ongoing_cost: What the calls of each replica of a continuously batched class shall
            cost at once, waiting ones included, in the unit of its ``cost``; None: their number
            decides.
        target_time_to_first_value_s: How long the callers of a continuously batched class shall
            wait for the first value in the mean, their wait for a replica included.
        target_time_per_value_s: How long they shall wait for each further value in the mean.
        target_wait_s: 99 of 100 calls shall wait at most so long for a replica.
        target_p99_s: 99 of 100 calls shall be answered within this time.
        advisory: Say what would be done, and do not do it.
    """

    min_replicas: int = 1
    initial_replicas: int | None = None
    max_replicas: int = _Unset(1)  # as immutable as other numbers
    target_ongoing_requests: float = 2.0
    look_back_period_s: float = 30.0
    upscale_delay_s: float = 0.0
    downscale_delay_s: float | None = None
    downscale_to_zero_delay_s: float | None = None
    upscaling_factor: float | None = 1.0
    downscaling_factor: float | None = 1.0
    aggregation_function: AggregationFunction | str = "mean"
    policy: AutoscalingPolicy | Mapping[str, object] | None = None
    target_ongoing_cost: float | None = None
    target_time_to_first_value_s: float | None = None
    target_time_per_value_s: float | None = None
    target_wait_s: float | None = None
    target_p99_s: float | None = None
    advisory: bool = False
    metrics_interval_s: InitVar[float | None] = None
    smoothing_factor: InitVar[float | None] = None
    upscale_smoothing_factor: InitVar[float | None] = None
    downscale_smoothing_factor: InitVar[float | None] = None

    def __post_init__(
        self,
        metrics_interval_s: float | None,
        smoothing_factor: float | None,
        upscale_smoothing_factor: float | None,
        downscale_smoothing_factor: float | None,
    ) -> None:
        # Kept, so that a deploy can say that it changes nothing.
        object.__setattr__(self, "metrics_interval_s", metrics_interval_s)
        self._take_older_names(
            metrics_interval_s=metrics_interval_s,
            smoothing_factor=smoothing_factor,
            upscale_smoothing_factor=upscale_smoothing_factor,
            downscale_smoothing_factor=downscale_smoothing_factor,
        )
        self._fill_in()
        self._check_counts()
        self._check_times()
        self._check_targets()
        check_flag("autoscaling_config.advisory", self.advisory)

    @classmethod
    def known(cls, given: Mapping[str, object]) -> dict[str, object]:
        """Return what of ``given``, which another release wrote, this one knows."""
        found = super().known(given)
        if isinstance(policy := found.get("policy"), Mapping):
            found["policy"] = AutoscalingPolicy.known(policy)
        return found

    def for_auto(self) -> AutoscalingConfig:
        """Return these options beside ``num_replicas="auto"``, which has a higher maximum."""
        if not isinstance(self.max_replicas, _Unset):
            return self
        return replace(self, max_replicas=max(AUTO_MAX_REPLICAS, self.min_replicas))

    @property
    def starts_with(self) -> int:
        """How many replicas a first deploy starts."""
        wanted = self.min_replicas if self.initial_replicas is None else self.initial_replicas
        return max(wanted, 1)

    @property
    def policy_path(self) -> str:
        """Where the user's own policy is; "": there is none."""
        return (
            str(self.policy.policy_function) if isinstance(self.policy, AutoscalingPolicy) else ""
        )

    @property
    def latency_target(self) -> tuple[str, float] | None:
        """Name and value of the target for the latency, if there is one."""
        for name in ("target_wait_s", "target_p99_s"):
            if (value := getattr(self, name)) is not None:
                return name, value
        return None

    @property
    def step_targets(self) -> tuple[str, ...]:
        """Names of the targets that only a continuously batched class can have, where set."""
        return tuple(name for name in _STEP_TARGETS if getattr(self, name) is not None)

    @property
    def has_time_targets(self) -> bool:
        """Whether times of values count."""
        times = self.target_time_to_first_value_s, self.target_time_per_value_s
        return any(each is not None for each in times)

    def _take_older_names(self, **older: float | None) -> None:
        for name, value in older.items():
            if value is None:
                continue
            names = _OLDER_FACTORS.get(name, ())
            hint = f"write {' and '.join(names)}" if names else "leave it out, it has no effect"
            warnings.warn(
                f"autoscaling_config.{name} is an older name; {hint}",
                DeprecationWarning,
                stacklevel=4,
            )
            for now in names:
                object.__setattr__(self, now, value)

    def _fill_in(self) -> None:
        for name in ("upscaling_factor", "downscaling_factor"):
            if getattr(self, name) is None:  # As Ray Serve writes its default.
                object.__setattr__(self, name, 1.0)
        if self.downscale_delay_s is None and self.latency_target is None:
            object.__setattr__(self, "downscale_delay_s", DOWNSCALE_DELAY_S)
        if self.policy is not None:
            policy = AutoscalingPolicy.of("autoscaling_config.policy", self.policy)
            object.__setattr__(self, "policy", policy)

    def _check_counts(self) -> None:
        for name, least in (("min_replicas", 0), ("max_replicas", 1)):
            check_integer(
                f"autoscaling_config.{name}",
                getattr(self, name),
                minimum=least,
                maximum=REPLICAS_MAX,
            )
        if self.max_replicas < self.min_replicas:
            raise refuse(
                "autoscaling_config.max_replicas",
                self.max_replicas,
                f"at least min_replicas={self.min_replicas}",
            )
        if self.initial_replicas is not None:
            check_integer(
                "autoscaling_config.initial_replicas",
                self.initial_replicas,
                minimum=self.min_replicas,
                maximum=self.max_replicas,
            )

    def _check_targets(self) -> None:
        for name in ("target_wait_s", "target_p99_s"):
            if (value := getattr(self, name)) is not None:
                check_seconds(f"autoscaling_config.{name}", value, exclusive=True)
                if self.policy_path:
                    raise refuse(
                        f"autoscaling_config.{name}", value, "none beside a policy of your own"
                    )
        for name in self.step_targets:
            full, value = f"autoscaling_config.{name}", getattr(self, name)
            if name == "target_ongoing_cost":
                check_number(full, value, minimum=0, exclusive=True)
            else:
                check_seconds(full, value, exclusive=True)
            beside = "a policy of your own" if self.policy_path else ""
            beside = beside or (self.latency_target or ("",))[0]
            if beside:
                raise refuse(full, value, f"none beside {beside}")
        if self.target_wait_s is not None and self.target_p99_s is not None:
            raise refuse(
                "autoscaling_config.target_p99_s", self.target_p99_s, "none beside target_wait_s"
            )

    def _check_times(self) -> None:
        name = "look_back_period_s"
        check_seconds(f"autoscaling_config.{name}", getattr(self, name), exclusive=True)
        check_seconds("autoscaling_config.upscale_delay_s", self.upscale_delay_s)
        for name in ("downscale_delay_s", "downscale_to_zero_delay_s"):
            if getattr(self, name) is not None:
                check_seconds(f"autoscaling_config.{name}", getattr(self, name))
        for name in ("target_ongoing_requests", "upscaling_factor", "downscaling_factor"):
            check_number(
                f"autoscaling_config.{name}", getattr(self, name), minimum=0, exclusive=True
            )
        known = [each.value for each in AggregationFunction]
        found = check_choice(
            "autoscaling_config.aggregation_function", self.aggregation_function, known
        )
        object.__setattr__(self, "aggregation_function", str(found))


def _is_import_path(text: str) -> bool:
    module, separator, name = text.partition(":")
    parts = [*module.split("."), *(name.split(".") if separator else ())]
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


# What an autoscaling policy of the user's is told, in Ray Serve's names.

Value = TypeVar("Value")
Metrics = Mapping[str, Mapping[ReplicaId, float]]
Series = Mapping[str, Mapping[ReplicaId, Sequence["TimeStampedValue"]]]


@dataclass(frozen=True, slots=True)
class DeploymentID:
    """Names a deployment, as policies of a whole application get and give it."""

    name: str
    app_name: str = "default"

    def __str__(self) -> str:
        return f"Deployment(name={self.name!r}, app={self.app_name!r})"


@dataclass(frozen=True, slots=True)
class TimeStampedValue:
    """One value of a metric, and when it was reported, in seconds of the Unix epoch."""

    timestamp: float
    value: float = field(compare=False)


class AutoscalingContext:
    """The facts about its deployment that a policy gets.

    Values that are costly to compute may be given as functions, which are called at the first use.

    Args:
        deployment_id: Name and application.
        deployment_name: The name alone.
        app_name: The application alone.
        current_num_replicas: How many run.
        target_num_replicas: How many should run.
        running_replicas: Ids of those that run.
        total_num_requests: Calls that wait or run.
        total_queued_requests: Those that wait for a replica.
        aggregated_metrics: By name and replica, what ``record_autoscaling_stats`` said, made one
            number each by ``aggregation_function``.
        raw_metrics: The same, one value after the other.
        capacity_adjusted_min_replicas: The least that is allowed.
        capacity_adjusted_max_replicas: The most that is allowed.
        policy_state: What the policy returned the last time.
        last_scale_up_time: In seconds of the Unix epoch; None: never.
        last_scale_down_time: The same.
        current_time: The same.
        config: The ``autoscaling_config``.
        total_pending_async_requests: Tasks that wait at a broker, where a policy asks one.
    """

    def __init__(
        self,
        deployment_id: DeploymentID,
        deployment_name: str,
        app_name: str | None,
        current_num_replicas: int,
        target_num_replicas: int,
        running_replicas: Sequence[ReplicaId],
        total_num_requests: float | Callable[[], float],
        total_queued_requests: float | Callable[[], float] | None,
        aggregated_metrics: Metrics | Callable[[], Metrics] | None,
        raw_metrics: Series | Callable[[], Series] | None,
        capacity_adjusted_min_replicas: int,
        capacity_adjusted_max_replicas: int,
        policy_state: dict[str, Any],
        last_scale_up_time: float | None,
        last_scale_down_time: float | None,
        current_time: float | None,
        config: AutoscalingConfig | None,
        total_pending_async_requests: int = 0,
    ) -> None:
        self.deployment_id = deployment_id
        self.deployment_name = deployment_name
        self.app_name = app_name
        self.current_num_replicas = current_num_replicas
        self.target_num_replicas = target_num_replicas
        self.running_replicas = list(running_replicas)
        self.capacity_adjusted_min_replicas = capacity_adjusted_min_replicas
        self.capacity_adjusted_max_replicas = capacity_adjusted_max_replicas
        self.policy_state = policy_state
        self.last_scale_up_time = last_scale_up_time
        self.last_scale_down_time = last_scale_down_time
        self.current_time = current_time
        self.config = config
        self.total_pending_async_requests = total_pending_async_requests
        self._total_num_requests = total_num_requests
        self._total_queued_requests = total_queued_requests
        self._aggregated_metrics = aggregated_metrics
        self._raw_metrics = raw_metrics

    @cached_property
    def total_num_requests(self) -> float:
        """Calls that wait or run."""
        return _value(self._total_num_requests)

    @cached_property
    def total_queued_requests(self) -> float:
        """Calls that wait for a replica."""
        queued = self._total_queued_requests
        return 0.0 if queued is None else _value(queued)

    @property
    def total_running_requests(self) -> float:
        """Calls that replicas have."""
        return self.total_num_requests - self.total_queued_requests

    @cached_property
    def aggregated_metrics(self) -> Metrics:
        """What ``record_autoscaling_stats`` said, one number for each name and replica."""
        found = self._aggregated_metrics
        return {} if found is None else _value(found)

    @cached_property
    def raw_metrics(self) -> Series:
        """What ``record_autoscaling_stats`` said, in the order of time."""
        found = self._raw_metrics
        return {} if found is None else _value(found)


def _value(found: Value | Callable[[], Value]) -> Value:
    return found() if callable(found) else found
