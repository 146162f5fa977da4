"""What pods may set, and who may connect to them. Pure.

Users who may deploy to a mesh run code in its pods. With their ``pod_template`` they choose where
the pods run, what the pods contain and which containers run beside the replica's; the operator
decides what pods may do to their node, to the cluster and to other pods. So, unless the operator
lifts the limits, a field is accepted only if it is in one of these lists, which allow less than the
Pod Security Standard `restricted`: no Secret by name, and no inline volume of a driver.

By the network policies, clients may connect to ingresses, and processes of the mesh to each other.
Metrics need the token, and a Prometheus server may run anywhere. Outgoing connections are not
limited: user code fetches models and queries databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Checks = Mapping[str, Callable[[object], bool]]

_POD = frozenset(
    {
        *("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"),
        *("priorityClassName", "preemptionPolicy", "schedulerName", "resourceClaims"),
        *("imagePullSecrets", "terminationGracePeriodSeconds"),
        *("dnsPolicy", "dnsConfig", "hostAliases"),
    }
)
_PROBES = frozenset({"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"})
_CONTAINER = frozenset(
    {
        *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "resources"),
        *("restartPolicy", "terminationMessagePath", "terminationMessagePolicy"),
    }
)
# Of lists within a container. A port of the node would be `hostPort`.
_ITEMS = {
    "ports": frozenset({"name", "containerPort", "protocol"}),
    "volumeMounts": frozenset(
        {"name", "mountPath", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr"}
    ),
    "env": frozenset({"name", "value", "valueFrom"}),
}
_VALUES_FROM = frozenset({"fieldRef", "resourceFieldRef", "configMapKeyRef"})
_VOLUMES = frozenset(
    {
        *("name", "emptyDir", "persistentVolumeClaim", "configMap", "downwardAPI"),
        *("ephemeral", "image"),
    }
)
# Annotations by which older clusters take security settings, of beta.kubernetes.io and the like.
_SECURITY_ANNOTATION = ".security."


def refused_parts(template: Mapping[str, object], state_claim: str) -> Iterator[str]:
    """Yield the fields of a template that are refused, such as ``spec.hostNetwork``.

    Args:
        template: as ``check_pod_template`` has checked its shape.
        state_claim: the claim of the controller's own volume.
    """
    annotations = _mapping(_mapping(template.get("metadata")).get("annotations"))
    for name in annotations:
        if _SECURITY_ANNOTATION in name.partition("/")[0]:
            yield f"metadata.annotations[{name!r}]"
    spec = _mapping(template.get("spec"))
    for name, value in spec.items():
        place = f"spec.{name}"
        if name in ("containers", "initContainers"):
            for each in _mappings(value):
                yield from _of_container(f"{place}[{each.get('name')!r}]", each)
        elif name == "volumes":
            for each in _mappings(value):
                yield from _of_volume(f"{place}[{each.get('name')!r}]", each, state_claim)
        elif name == "securityContext":
            yield from _of_security(place, value, _POD_SECURITY)
        elif name not in _POD:
            yield place


def _of_container(place: str, container: Mapping[str, object]) -> Iterator[str]:
    for name, value in container.items():
        inner = f"{place}.{name}"
        if name in _ITEMS:
            yield from _of_items(inner, value, _ITEMS[name])
        elif name in _PROBES:
            # The kubelet makes these requests, and can reach hosts that the pod cannot.
            yield from (f"{inner}{path}" for path in _named_hosts(value))
        elif name == "securityContext":
            yield from _of_security(inner, value, _CONTAINER_SECURITY)
        elif name not in _CONTAINER:
            yield inner


def _of_items(place: str, items: object, allowed: frozenset[str]) -> Iterator[str]:
    for each in _mappings(items):
        yield from (f"{place}[].{name}" for name in each if name not in allowed)
        sources = _mapping(each.get("valueFrom"))
        yield from (f"{place}[].valueFrom.{name}" for name in sources if name not in _VALUES_FROM)


def _of_volume(place: str, volume: Mapping[str, object], state_claim: str) -> Iterator[str]:
    yield from (f"{place}.{name}" for name in volume if name not in _VOLUMES)
    claim = _mapping(volume.get("persistentVolumeClaim")).get("claimName")
    if claim == state_claim:
        yield f"{place}.persistentVolumeClaim of the controller"


def _of_security(place: str, value: object, checks: Checks) -> Iterator[str]:
    """Yield settings that do more than drop rights: ``None`` would remove our own settings."""
    if not isinstance(value, Mapping):
        yield place
        return
    for name, given in value.items():
        check = checks.get(name)
        if check is None or not check(given):
            yield f"{place}.{name}={given!r}"


def _named_hosts(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == "host":
                yield f"{path}.host"
            yield from _named_hosts(inner, f"{path}.{name}")


def _is_user(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _drops_all(value: object) -> bool:
    found = _mapping(value)
    drops = found.get("drop")
    return found.keys() == {"drop"} and isinstance(drops, list | tuple) and "ALL" in drops


_EVERYWHERE: Checks = {
    "runAsNonRoot": lambda value: value is True,
    "runAsUser": _is_user,
    "runAsGroup": _is_user,
    "seccompProfile": lambda value: value == {"type": "RuntimeDefault"},
}
_POD_SECURITY: Checks = {
    **_EVERYWHERE,
    "fsGroup": _is_user,
    "fsGroupChangePolicy": lambda value: isinstance(value, str),
}
_CONTAINER_SECURITY: Checks = {
    **_EVERYWHERE,
    "privileged": lambda value: value is False,
    "allowPrivilegeEscalation": lambda value: value is False,
    "readOnlyRootFilesystem": lambda value: isinstance(value, bool),
    "capabilities": _drops_all,
}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> Sequence[Mapping[str, object]]:
    items = value if isinstance(value, list | tuple) else ()
    return [each for each in items if isinstance(each, Mapping)]


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
