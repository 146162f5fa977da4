"""The metrics that a replica brings. Pure."""

from __future__ import annotations

from pyserve.observe.metrics.metric import Metric

REPLICA: tuple[Metric, ...] = ()
