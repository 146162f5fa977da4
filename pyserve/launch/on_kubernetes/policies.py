"""Network policies: who may connect to the pods of a mesh. Pure.

Clients may connect to ingresses, and processes of the mesh to each other. Metrics need the token,
and a Prometheus server may run anywhere. Outgoing connections are not limited: user code fetches
models and queries databases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_INSTANCE, _COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
# The ports of each component to which everybody may connect, by name.
_OPEN = {
    "controller": ("metrics",),
    "ingress": ("serving", "metrics"),
    "replica": ("metrics",),
    "deploy": (),
}


def policy_specs(name: str) -> Mapping[str, dict[str, Any]]:
    """Return the ``spec`` of a policy for each component of the mesh called ``name``."""
    return {component: _spec(name, component) for component in _OPEN}


def _spec(name: str, component: str) -> dict[str, Any]:
    ports = [{"port": port} for port in _OPEN[component]]
    # With the mesh's name among its labels a pod of the same namespace is one of its processes.
    own = {"from": [{"podSelector": {"matchLabels": {_INSTANCE: name}}}]}
    is_called = component != "deploy"
    return {
        "podSelector": {"matchLabels": {_INSTANCE: name, _COMPONENT: component}},
        "policyTypes": ["Ingress"],
        "ingress": [*([own] if is_called else []), *([{"ports": ports}] if ports else [])],
    }
