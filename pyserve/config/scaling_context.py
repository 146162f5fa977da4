"""What an autoscaling policy of the user's is told, in Ray Serve's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from pyserve.config.scaling import AutoscalingConfig
from pyserve.types import ReplicaId

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
