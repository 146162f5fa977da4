"""The nested parts of the deployment options: batching, autoscaling, resources.

Each part is frozen, checks itself when it is made, and has the names and defaults of
``docs/reference``; ``of`` reads it from the mapping that a user wrote.
"""

from __future__ import annotations

import difflib
import enum
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Literal, Self

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
from pyserve.errors import OptionError
from pyserve.later import Later

# Of one deployment. Far more than run on a machine; a larger number is a slip.
REPLICAS_MAX = 10_000


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``OptionError`` for the first name of ``given`` that ``known`` lacks."""
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(names)
            raise OptionError(f"{owner} has no option {name!r}; {hint}")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A frozen group of options that is written as a mapping or as an object."""

    @classmethod
    def of(cls, owner: str, value: object) -> Self:
        """Read the part from a mapping, or return it if ``value`` is one already."""
        if isinstance(value, cls):
            return value
        given = cls._rename(check_mapping(owner, value))
        # Those of the constructor: older names are among them.
        check_names(owner, given, cls.__dataclass_fields__)
        return cls(**given)

    @classmethod
    def _rename(cls, given: dict[str, object]) -> dict[str, object]:
        return given


@dataclass(frozen=True, kw_only=True)
class BackpressureConfig(Part):
    """How plain HTTP is answered when no more requests may wait; gRPC: RESOURCE_EXHAUSTED.

    Attributes:
        status_code: 503 or 429.
        retry_after_s: accepted as Ray Serve has it. ``Retry-After`` is always sent, with the
            router's own estimate of when there is room again, at least 1.
    """

    status_code: int = 503
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        if self.status_code not in (503, 429) or isinstance(self.status_code, float):
            raise refuse("backpressure_config.status_code", self.status_code, "503 or 429")
        if self.retry_after_s is not None:
            check_seconds("backpressure_config.retry_after_s", self.retry_after_s)


@dataclass(frozen=True, kw_only=True)
class BatchingConfig(Part):
    """A batcher in front of methods that have no decorator.

    Attributes:
        max_batch_size: items in a batch, at least 1.
        timeout_s: how long the first item may wait for company; ``"auto"`` learns it.
        stride_s: 0 dispatches at once; above, only at ticks of this length.
        allow_small_batch: whether a batch that is not full may leave at the timeout.
        max_concurrent_batches: batches that run at once in a replica.
        methods: names of the methods; empty means ``__call__``.
    """

    max_batch_size: int = 32
    timeout_s: float | Literal["auto"] = 0.1
    stride_s: float = 0.0
    allow_small_batch: bool = True
    max_concurrent_batches: int = 1
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_integer("batching_config.max_batch_size", self.max_batch_size, minimum=1)
        if self.timeout_s != "auto":
            check_seconds("batching_config.timeout_s", self.timeout_s)
        check_seconds("batching_config.stride_s", self.stride_s)
        check_flag("batching_config.allow_small_batch", self.allow_small_batch)
        check_integer(
            "batching_config.max_concurrent_batches", self.max_concurrent_batches, minimum=1
        )
        for method in self.methods:
            check_text("batching_config.methods", method, "a list of method names")

    @classmethod
    def _rename(cls, given: dict[str, object]) -> dict[str, object]:
        if "batch_wait_timeout_s" in given:
            if "timeout_s" in given:
                raise OptionError(
                    "batching_config has both timeout_s and batch_wait_timeout_s, which are two "
                    "names of one option; keep timeout_s"
                )
            given["timeout_s"] = given.pop("batch_wait_timeout_s")
        methods = given.get("methods")
        if methods is None:
            given.pop("methods", None)
        elif isinstance(methods, list | tuple):
            given["methods"] = tuple(methods)
        else:
            raise refuse("batching_config.methods", methods, "a list of method names")
        return given


class AggregationFunction(enum.StrEnum):
    """How the measurements of a time become one number."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, kw_only=True)
class AutoscalingPolicy(Part):
    """Who decides how many replicas there are; without one the load does.

    Attributes:
        policy_function: A function or a class, or its import path; kept as the path.
        policy_kwargs: Arguments for the constructor of a class.
    """

    policy_function: str | Callable[..., object] = ""
    policy_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = self.policy_function
        if callable(found) and hasattr(found, "__qualname__"):
            path = f"{found.__module__}:{found.__qualname__}"
            object.__setattr__(self, "policy_function", path)
        elif not isinstance(found, str):
            allowed = "a function, a class, or its import path 'module:name'"
            raise refuse("autoscaling_config.policy.policy_function", found, allowed)
        check_json(
            "autoscaling_config.policy.policy_kwargs",
            check_mapping("autoscaling_config.policy.policy_kwargs", self.policy_kwargs),
        )


class AutoscalingContext(Later):
    """What a policy is told of its deployment, when replicas follow the load."""

    instead = "set num_replicas, and deploy again when it has to change"


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
    """

    min_replicas: int = 1
    initial_replicas: int | None = None
    max_replicas: int = 1
    target_ongoing_requests: float = 2.0
    look_back_period_s: float = 30.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    downscale_to_zero_delay_s: float | None = None
    upscaling_factor: float | None = 1.0
    downscaling_factor: float | None = 1.0
    aggregation_function: AggregationFunction | str = "mean"
    policy: AutoscalingPolicy | Mapping[str, object] | None = None
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
        self._take_older_names(
            metrics_interval_s=metrics_interval_s,
            smoothing_factor=smoothing_factor,
            upscale_smoothing_factor=upscale_smoothing_factor,
            downscale_smoothing_factor=downscale_smoothing_factor,
        )
        self._fill_in()
        self._check_counts()
        self._check_times()

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

    def _check_times(self) -> None:
        for name in ("look_back_period_s", "upscale_delay_s", "downscale_delay_s"):
            check_seconds(f"autoscaling_config.{name}", getattr(self, name))
        if self.downscale_to_zero_delay_s is not None:
            check_seconds(
                "autoscaling_config.downscale_to_zero_delay_s", self.downscale_to_zero_delay_s
            )
        for name in ("target_ongoing_requests", "upscaling_factor", "downscaling_factor"):
            check_number(
                f"autoscaling_config.{name}", getattr(self, name), minimum=0, exclusive=True
            )
        known = [each.value for each in AggregationFunction]
        found = check_choice(
            "autoscaling_config.aggregation_function", self.aggregation_function, known
        )
        object.__setattr__(self, "aggregation_function", str(found))


@dataclass(frozen=True, kw_only=True)
class Resources(Part):
    """What one replica takes of a machine; the launcher reserves it.

    Attributes:
        num_cpus: processors; ``None`` reserves none, and counts as one for the variables that
            bound the threads of numerical libraries.
        num_gpus: graphics devices: a share of one, or whole ones.
        memory: bytes.
        accelerator_type: what kind of device.
        resources: amounts of what the operator declared by name.
    """

    num_cpus: float | None = None
    num_gpus: float = 0.0
    memory: float | None = None
    accelerator_type: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_cpus is not None:
            check_number("resources.num_cpus", self.num_cpus, minimum=0)
        check_number("resources.num_gpus", self.num_gpus, minimum=0)
        if self.memory is not None:
            check_number("resources.memory", self.memory, minimum=0, unit="bytes")
        if self.accelerator_type is not None:
            check_text("resources.accelerator_type", self.accelerator_type)
        for name, amount in check_mapping("resources.resources", self.resources).items():
            check_number(f"resources.resources[{name!r}]", amount, minimum=0)
