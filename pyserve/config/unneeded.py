"""Variables of Ray Serve that have nothing to set here, each with what takes its place.

They are no mistakes, so that an environment which was written for it can be kept.
"""

from __future__ import annotations

from collections.abc import Mapping

_REASONS = {
    "RAY_SERVE_ENABLE_HA_PROXY": (
        "the ingress is native; `pyserve haproxy-config` puts HAProxy in front of a mesh"
    ),
    "RAY_SERVE_CONTROLLER_MAX_CONCURRENCY": (
        "a process has one stream to the controller, however many handles it has"
    ),
    "RAY_SERVE_MAX_CACHED_HANDLES": "handles share the router of their process",
}
NAMES = frozenset(_REASONS)


def lines_on(variables: Mapping[str, str]) -> list[str]:
    """Return a line on each of them that is set."""
    return [
        f"{name} has no effect: {reason}" for name, reason in _REASONS.items() if name in variables
    ]
