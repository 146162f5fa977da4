"""Makes the pod of one replica as an object, and finds options it cannot satisfy. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.config import DeploymentOptions, Resources
from pyserve.config.control import KILL_MARGIN_S
from pyserve.config.launchers import REPLICA_CONTAINER
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.launch.capacity import thread_counts
from pyserve.launch.on_kubernetes.allowed import refused_parts
from pyserve.types import ReplicaId

Object = Mapping[str, Any]
MESH_LABEL, APPLICATION_LABEL = "pyserve/mesh", "pyserve/application"
DEPLOYMENT_LABEL, VERSION_LABEL = "pyserve/deployment", "pyserve/version"
REPLICA_ANNOTATION = "pyserve/replica"
TOKEN_FOLDER, TOKEN_KEY = "/etc/pyserve/token", "token"
TLS_FOLDER = "/etc/pyserve/tls"
# Of cert-manager's Secrets, and of those of the type kubernetes.io/tls.
TLS_FILES = {"CERT_FILE": "tls.crt", "KEY_FILE": "tls.key", "CA_FILE": "ca.crt"}
TLS_NAMES = "PYSERVE_MESH_TLS_NAMES"
METRICS_PORT = 9101
# The user of the images in this repository; any that is not root will do.
USER = 10001
HOST_LABEL, ZONE_LABEL = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_GPU = "nvidia.com/gpu"
_LABEL_LENGTH_MAX, _NAME_LENGTH_MAX = 63, 63
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_HASH_LENGTH = 8
# Ray's names of what Kubernetes calls otherwise, so that one file works with both.
_LABELS_OF_RAY = {
    "ray.io/availability-zone": ZONE_LABEL,
    "ray.io/availability-region": "topology.kubernetes.io/region",
}
# Ray's language of label selectors: a value, several of them, or none of them.
_SELECTOR = re.compile(r"(?P<no>!?)(?:in\((?P<several>[^()]*)\)|(?P<one>[^!()]*))\Z")
# Preferences are told by weights from 100 on downwards (core/v1, PreferredSchedulingTerm).
_WEIGHT_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """What all pods of a mesh have in common.

    Attributes:
        namespace: that they are in.
        name: of the mesh, for people and selectors.
        mesh: distinguishes this mesh's pods from those of others; a label's value.
        image: of deployments that name none.
        token_secret: the Secret with the mesh token.
        tls_secret: the Secret with certificates between processes; "": none.
        environment: variables of every replica.
        template: laid over every pod.
        packs: replicas are placed together where possible, instead of spread out.
        owner: the object whose deletion deletes them; none: only the launcher deletes them.
    """

    namespace: str
    name: str
    mesh: str
    image: str
    token_secret: str
    tls_secret: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    template: Object = field(default_factory=dict)
    packs: bool = False
    owner: Object | None = None


def pod_name(plan: PodPlan, replica_id: ReplicaId, application: str) -> str:
    """Return the name of a replica's pod: unique, and the same each time."""
    deployment, _, letters = replica_id.partition("#")
    digest = _digest(f"{plan.mesh}/{application}/{replica_id}")
    end = f"-{_slug(letters)}-{digest}"
    return _slug(deployment)[: _NAME_LENGTH_MAX - len(end)].rstrip("-") + end


def pod_of(order: ReplicaOrder, plan: PodPlan, controller: str) -> dict[str, Any]:
    """Return the object of a replica's pod.

    Args:
        order: the replica.
        plan: of its mesh.
        controller: where it finds that, ``host:port``.
    """
    options = order.options or DeploymentOptions()
    labels = {
        **labels_of(plan.name, "replica"),
        MESH_LABEL: plan.mesh,
        APPLICATION_LABEL: label_value(order.key.application),
        DEPLOYMENT_LABEL: label_value(order.key.deployment),
        VERSION_LABEL: label_value(order.version or "none"),
    }
    pod: object = {
        "metadata": {"labels": labels, "annotations": {REPLICA_ANNOTATION: order.replica_id}},
        "spec": {
            # A replica that has ended is replaced by another one, which its controller decides.
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace_s(options.graceful_shutdown_timeout_s),
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": security_of_pod(),
            **({} if plan.packs else {"topologySpreadConstraints": spread(_of_version(labels))}),
            "containers": [_container(order, plan, controller)],
            "volumes": secret_volumes(plan.token_secret, plan.tls_secret),
            **_affinity(options, labels, packs=plan.packs),
        },
    }
    for template in (plan.template, options.pod_template or {}):
        pod = lay_over(pod, template)
    assert isinstance(pod, dict), "mappings stay mappings"
    metadata = {
        **pod["metadata"],
        "name": pod_name(plan, order.replica_id, order.key.application),
        "namespace": plan.namespace,
        **({} if plan.owner is None else {"ownerReferences": [dict(plan.owner)]}),
    }
    # Ours again, since selectors and the next controller look for them.
    metadata["labels"] = {**metadata["labels"], **labels}
    plain = json.loads(json.dumps(pod["spec"]))
    for name in ("containers", "initContainers"):
        for each in plain.get(name) or ():
            _secure(each)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": plain}


def _secure(container: dict[str, Any]) -> None:
    """Ask of a container beside the replica's what a restricted namespace asks of all."""
    given = container.get("securityContext") or {}
    if not given.get("privileged"):
        container["securityContext"] = {**security_of_container(), **given}


def labels_of(name: str, component: str) -> dict[str, str]:
    """Return the labels of an object of a mesh that tools for all of Kubernetes know."""
    return {
        "app.kubernetes.io/name": "pyserve",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "pyserve",
    }


def grace_s(timeout_s: float) -> int:
    """Return how long a pod may take to end whose calls in flight may take ``timeout_s``."""
    return math.ceil(timeout_s + 2 * KILL_MARGIN_S)


def security_of_pod() -> dict[str, Any]:
    """Return what the Pod Security Standard `restricted` asks of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def security_of_container() -> dict[str, Any]:
    """Return what the same standard asks of a container."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def secret_volumes(token_secret: str, tls_secret: str = "") -> list[dict[str, Any]]:
    """Return the volumes of the Secrets that each process of a mesh reads."""
    secrets = {"pyserve-token": token_secret, "pyserve-tls": tls_secret}
    return [
        {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}}
        for name, secret in secrets.items()
        if secret
    ]


def secret_mounts(tls_secret: str = "") -> list[dict[str, Any]]:
    """Return where those volumes are."""
    token = {"name": "pyserve-token", "mountPath": TOKEN_FOLDER, "readOnly": True}
    tls = {"name": "pyserve-tls", "mountPath": TLS_FOLDER, "readOnly": True}
    return [token, *([tls] if tls_secret else [])]


def secret_variables(tls_secret: str = "") -> dict[str, str]:
    """Return the variables that name the files in those volumes."""
    tls = {f"PYSERVE_MESH_TLS_{name}": f"{TLS_FOLDER}/{file}" for name, file in TLS_FILES.items()}
    return {"PYSERVE_TOKEN_FILE": f"{TOKEN_FOLDER}/{TOKEN_KEY}", **(tls if tls_secret else {})}


def node_variable() -> dict[str, Any]:
    """Return the variable that names the node of a container."""
    return field_variable("PYSERVE_NODE_ID", "spec.nodeName")


def field_variable(name: str, path: str) -> dict[str, Any]:
    """Return a variable with the value of a field of its pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def plain_variables(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return variables as a container has them."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def label_value(text: str) -> str:
    """Return a text as the value of a label: as it is, or cut, with a hash of the whole."""
    if len(text) <= _LABEL_LENGTH_MAX and _LABEL.match(text):
        return text
    kept = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[: _LABEL_LENGTH_MAX - _HASH_LENGTH - 1]
    return f"{kept.strip('-_.') or 'x'}-{_digest(text)}"


def refusal(options: DeploymentOptions, *, name: str = "pyserve", is_open: bool = False) -> str:
    """Return which values of options the cluster or the mesh refuses; "": none.

    Args:
        options: of a deployment.
        name: of the mesh.
        is_open: templates may say whatever the cluster takes.
    """
    if found := next(_refusals(options), ""):
        return found
    if is_open:
        return ""
    # As a StatefulSet calls it (manifests.py).
    parts = list(refused_parts(options.pod_template or {}, f"state-{name}-controller-0"))
    if not parts:
        return ""
    return (
        f"it does not take {', '.join(parts)} of pod_template: a deployment says where its pods "
        f"run and what they hold, and not what they may do to nodes and to others; leave that out, "
        f"or have the operator set open_pod_templates, or the pod_template of the launcher itself"
    )


def _refusals(options: DeploymentOptions) -> Iterator[str]:
    wanted = options.resources
    if not float(wanted.num_gpus).is_integer():
        yield f"it cannot give resources.num_gpus={wanted.num_gpus:g}: devices of a pod are whole"
    for name, amount in wanted.resources.items():
        if "/" not in name:
            yield (
                f"it cannot give resources.resources[{name!r}]: a resource that nodes announce has "
                f"a name such as example.com/{name.lower()}"
            )
        elif not float(amount).is_integer():
            yield f"it cannot give resources.resources[{name!r}]={amount:g}: amounts are whole"
    if (options.working_dir or "").endswith(".zip"):
        yield "it cannot give working_dir as an archive; put the folder into the image"
    if options.max_replicas_per_node not in (None, 1):
        yield (
            f"it cannot give max_replicas_per_node={options.max_replicas_per_node}, but only 1; "
            f"topologySpreadConstraints of pod_template bound how uneven nodes may be"
        )
    selectors = [wanted.label_selector or {}, *_fallbacks(wanted)]
    for each in wanted.fallback_strategy or ():
        if unknown := sorted(each.keys() - {"label_selector"}):
            yield f"it cannot give {', '.join(unknown)} of resources.fallback_strategy"
    for name, value in (pair for each in selectors for pair in each.items()):
        if not _SELECTOR.match(value):
            yield (
                f"it cannot give resources.label_selector[{name!r}]={value!r}; write 'a', '!a', "
                f"'in(a, b)' or '!in(a, b)'"
            )
    yield from _refusals_of_template(options)


def _refusals_of_template(options: DeploymentOptions) -> Iterator[str]:
    spec: Object = (options.pod_template or {}).get("spec") or {}  # type: ignore[assignment]
    has_own = options.max_replicas_per_node is not None or options.resources.label_selector
    if has_own and "affinity" in spec:
        yield (
            "it cannot give affinity of pod_template beside label_selector or "
            "max_replicas_per_node, which become one; write all of it in one place"
        )
    if "restartPolicy" in spec:
        yield "it cannot give restartPolicy of pod_template: replicas are replaced, not restarted"
    for container in spec.get("containers") or ():
        if container["name"] == REPLICA_CONTAINER:
            for name in sorted({"command", "args"} & container.keys()):
                yield f"it cannot give {name} of the container {REPLICA_CONTAINER!r}, which is ours"


def _container(order: ReplicaOrder, plan: PodPlan, controller: str) -> dict[str, Any]:
    options = order.options or DeploymentOptions()
    variables = {
        **thread_counts(order.resources),
        "PYTHONUNBUFFERED": "1",
        "PYSERVE_BIND_HOST": "0.0.0.0",  # noqa: S104  # of the pod alone
        "PYSERVE_HOME": "/tmp/pyserve",  # noqa: S108  # of the container alone
        **plan.environment,
        **secret_variables(plan.tls_secret),
        **order.environment,
    }
    return {
        "name": REPLICA_CONTAINER,
        "image": plan.image,
        "command": ["python", "-P", "-m", "pyserve.replica"],
        "args": [*order.arguments(controller), "--own-metrics"],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "env": [node_variable(), *plain_variables(variables)],
        "resources": _amounts(order.resources),
        "volumeMounts": secret_mounts(plan.tls_secret),
        "securityContext": security_of_container(),
        # Puts its last output into its status, where a later controller can read it too.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The driver's own folder need not be in the image.
        **({"workingDir": options.working_dir} if options.working_dir else {}),
    }


def _amounts(wanted: Resources) -> dict[str, dict[str, str]]:
    """Return a container's requests; those for memory and devices are its limits too."""
    requests: dict[str, str] = {}
    limits = {name: f"{amount:.0f}" for name, amount in wanted.resources.items()}
    if wanted.num_cpus:
        requests["cpu"] = f"{math.ceil(wanted.num_cpus * 1000)}m"
    if wanted.memory:
        limits["memory"] = f"{wanted.memory:.0f}"
    if wanted.num_gpus:
        limits[_GPU] = f"{wanted.num_gpus:.0f}"
    requests.update(limits)
    return {
        **({"requests": requests} if requests else {}),
        **({"limits": limits} if limits else {}),
    }


def _of_version(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those labels that the replicas of one version have in common."""
    names = (APPLICATION_LABEL, DEPLOYMENT_LABEL, VERSION_LABEL, MESH_LABEL)
    return {name: labels[name] for name in names}


def spread(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a rule that spreads out the pods with these labels where possible."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(labels)},
        }
        for key in (ZONE_LABEL, HOST_LABEL)
    ]


def _affinity(
    options: DeploymentOptions, labels: Mapping[str, str], *, packs: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    wanted = options.resources
    if wanted.label_selector:
        selectors = [wanted.label_selector, *_fallbacks(wanted)]
        terms = [{"matchExpressions": list(_expressions(each))} for each in selectors]
        found["nodeAffinity"] = {
            # Any of them will do; the first one is best.
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": max(_WEIGHT_MAX // 2**place, 1), "preference": term}
                for place, term in enumerate(terms)
                if term["matchExpressions"]
            ],
        }
        if all(selectors):
            found["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": terms
            }
    if options.max_replicas_per_node == 1:
        # Of one version, so that the next one finds a place beside it.
        apart = {
            "labelSelector": {"matchLabels": _of_version(labels)},
            "topologyKey": HOST_LABEL,
        }
        found["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    if packs:
        # The scheduler counts them: the more pods a node has, the better.
        replicas = {name: labels[name] for name in ("app.kubernetes.io/component", MESH_LABEL)}
        near = {"labelSelector": {"matchLabels": replicas}, "topologyKey": HOST_LABEL}
        found["podAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": _WEIGHT_MAX, "podAffinityTerm": near}
            ]
        }
    return {"affinity": found} if found else {}


def _fallbacks(wanted: Resources) -> list[Mapping[str, str]]:
    found = (each.get("label_selector") or {} for each in wanted.fallback_strategy or ())
    return [each for each in found if isinstance(each, Mapping)]


def _expressions(selector: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, value in selector.items():
        match = _SELECTOR.match(value)
        assert match is not None, "refused where it was deployed"
        several = match["several"]
        values = [match["one"]] if several is None else several.split(",")
        yield {
            "key": _LABELS_OF_RAY.get(name, name),
            "operator": "NotIn" if match["no"] else "In",
            "values": [each.strip() for each in values],
        }


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


# Merges a user's template into a Kubernetes object, as `kubectl patch` would.
#
# Mappings are merged name by name, also in lists whose elements have a name (the merge keys of
# Kubernetes' API reference); other lists, and single values, replace the former value. `None`
# removes it.

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


def lay_over(base: object, over: object, name: str = "") -> object:
    """Return ``base`` with ``over`` on top; neither is changed.

    Args:
        base: what is there.
        over: what replaces or completes it.
        name: of the field that holds both.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = dict(base)
        for field, value in over.items():
            if value is None:
                merged.pop(field, None)
            else:
                merged[field] = lay_over(base.get(field), value, field)
        return merged
    key = _MERGE_KEYS.get(name)
    if key is not None and isinstance(base, list) and isinstance(over, Sequence):
        return _by_key(base, over, key)
    return over


def _by_key(base: Sequence[Mapping[str, object]], over: Sequence[object], key: str) -> list[object]:
    found: dict[object, object] = {each[key]: each for each in base}
    for each in over:
        assert isinstance(each, Mapping), "options are checked when they are made"
        identity = each.get(key)
        found[identity] = lay_over(found.get(identity), each)
    return list(found.values())
