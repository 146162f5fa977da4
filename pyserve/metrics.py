"""``ray.serve.metrics``: what user code counts, shown with the metrics of its replica.

A metric may be made anywhere, also at the head of a module or in a class that travels to its
replicas. Its samples have the labels ``application``, ``deployment`` and ``replica`` besides its
tags. Any thread may use it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyserve.observe.metrics.user import PROCESS_USER_METRICS, RESERVED_TAGS, UserMetric, check_name

__all__ = ["Counter", "Gauge", "Histogram"]

_TAG = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Nobody knows the unit: three steps in each power of ten, from a tenth of a thousandth on.
_BOUNDS = tuple(step * 10.0**power for power in range(-4, 5) for step in (1.0, 2.5, 5.0))


class _Metric:
    """The common part of the three kinds.

    Args:
        name: Letters, digits and underscores; unique in the replica.
        description: A sentence for people.
        tag_keys: Names of the tags; each value that is counted has all of them.

    Raises:
        ValueError: The name or a tag is not allowed, or another metric has the name.
        TypeError: ``tag_keys`` is no tuple or list of texts.
    """

    _kind = ""

    def __init__(
        self, name: str, description: str = "", tag_keys: Sequence[str] | None = None
    ) -> None:
        check_name(name)
        self._name = name
        self._description = description
        self._tag_keys = _checked_keys(tag_keys)
        self._default_tags: dict[str, str] = {}
        self._metric: UserMetric = PROCESS_USER_METRICS.metric(
            self._kind, name, description, self._tag_keys, self._bounds()
        )

    def _bounds(self) -> tuple[float, ...]:
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self._arguments(), self._default_tags)

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self._tag_keys

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys and default tags."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._default_tags),
        }

    def set_default_tags(self, default_tags: Mapping[str, str]) -> None:
        """Give tags their values for the calls that do not say them.

        Raises:
            ValueError: One is not among the tag keys.
            TypeError: A value is no text.
        """
        self._check(default_tags)
        self._default_tags = dict(default_tags)

    def _key(self, tags: Mapping[str, str] | None) -> tuple[str, ...]:
        if not self._tag_keys and not tags:
            return ()
        if tags:
            self._check(tags)
        given = {**self._default_tags, **(tags or {})}
        if missing := [key for key in self._tag_keys if key not in given]:
            raise ValueError(f"metric {self._name!r}: no value for the tags {', '.join(missing)}")
        return tuple(given[key] for key in self._tag_keys)

    def _check(self, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            if key not in self._tag_keys:
                raise ValueError(
                    f"metric {self._name!r}: {key!r} is no tag key of it; it has "
                    f"{', '.join(self._tag_keys) or 'none'}"
                )
            if not isinstance(value, str):
                raise TypeError(f"metric {self._name!r}: tag {key}={value!r}; write a text")

    def _number(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"metric {self._name!r}: {value!r} is no number")
        return float(value)


class Counter(_Metric):
    """A number that grows; Prometheus sees it as ``name_total``."""

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Add ``value``, which is above 0.

        Raises:
            ValueError: It is not above 0, or the tags are not those of the metric.
            TypeError: It is no number, or a tag no text.
        """
        amount = self._number(value)
        if not amount > 0:
            raise ValueError(f"metric {self._name!r}: inc({value!r}); write a number above 0")
        self._metric.add(self._key(tags), amount)


class Gauge(_Metric):
    """A number that goes up and down."""

    _kind = "gauge"

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Let the number be ``value`` from now on.

        Raises:
            ValueError: The tags are not those of the metric.
            TypeError: It is no number, or a tag no text.
        """
        self._metric.set(self._key(tags), self._number(value))


class Histogram(_Metric):
    """Counts by size.

    Args:
        name: As of ``Counter``.
        description: The same.
        boundaries: Upper bounds of the buckets, growing; ``None``: three for each power of ten.
        tag_keys: The same.

    Raises:
        ValueError: As of ``Counter``; or the bounds do not grow.
        TypeError: As of ``Counter``.
    """

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        bounds = _BOUNDS if boundaries is None else tuple(map(float, boundaries))
        grows = all(before < after for before, after in itertools.pairwise(bounds))
        if not bounds or not grows or not all(map(math.isfinite, bounds)):
            raise ValueError(
                f"metric {name!r}: boundaries={boundaries!r}; write numbers that grow, such as "
                f"[0.01, 0.1, 1]"
            )
        self._boundaries = bounds
        super().__init__(name, description, tag_keys)

    def _bounds(self) -> tuple[float, ...]:
        return self._boundaries

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self._boundaries, self._tag_keys

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys, default tags and boundaries."""
        return {**super().info, "boundaries": list(self._boundaries)}

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Count ``value``.

        Raises:
            ValueError: The tags are not those of the metric.
            TypeError: It is no number, or a tag no text.
        """
        self._metric.observe(self._key(tags), self._number(value))


def _remade(
    kind: type[_Metric], arguments: tuple[Any, ...], default_tags: Mapping[str, str]
) -> _Metric:
    """Make a metric in the process that it has travelled to."""
    metric = kind(*arguments)
    metric.set_default_tags(default_tags)
    return metric


def _checked_keys(tag_keys: Sequence[str] | None) -> tuple[str, ...]:
    given: object = tag_keys
    if given is None:
        return ()
    if not isinstance(given, tuple | list) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"tag_keys={tag_keys!r}; write a tuple of texts, such as ('model',)")
    keys = tuple(given)
    for key in keys:
        if not _TAG.fullmatch(key) or key.startswith("__") or key in ("le", "quantile"):
            raise ValueError(
                f"tag key {key!r} is not allowed; write letters, digits and underscores"
            )
        if key in RESERVED_TAGS:
            raise ValueError(f"tag key {key!r} is what every metric of a replica has by itself")
    if len(set(keys)) < len(keys):
        raise ValueError(f"tag_keys={tag_keys!r}; each may be there once")
    return keys
