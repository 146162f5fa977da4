"""Who may connect to the pods of a mesh, where the cluster's network has such policies. Pure.

Clients come to ingresses, processes of the mesh to each other. Metrics are for whoever has the
token, and a Prometheus may run anywhere. What pods connect to is not said here: user code fetches
models and asks databases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_INSTANCE, _COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
# Of each component, what everybody may connect to, by the names of ports.
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
