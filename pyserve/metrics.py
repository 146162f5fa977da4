"""``ray.serve.metrics``: user code's own measurements, which a later release exports."""

from pyserve.later import Later

_INSTEAD = "use a metrics library of your own, such as prometheus_client, in the deployment's code"


class Counter(Later):
    """A number that grows: ``Counter(name, description="", tag_keys=None)``."""

    instead = _INSTEAD


class Gauge(Later):
    """A number that goes up and down: ``Gauge(name, description="", tag_keys=None)``."""

    instead = _INSTEAD


class Histogram(Later):
    """Counts by size: ``Histogram(name, description="", boundaries=None, tag_keys=None)``."""

    instead = _INSTEAD


__all__ = ["Counter", "Gauge", "Histogram"]
