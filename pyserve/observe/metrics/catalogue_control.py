"""The metrics that a control brings. Pure."""

from __future__ import annotations

from pyserve.observe.metrics.metric import Metric

CONTROL: tuple[Metric, ...] = ()
