"""What an operator applies to have a mesh on Kubernetes: plain objects, one after the other. Pure.

The replicas are not among them: the controller makes their pods. ``deploy/kubernetes`` has the same
as a chart of Helm and as a base of kustomize, which ``make gen`` writes from here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyserve.config.tls import PLAIN_TCP
from pyserve.launch.on_kubernetes.allowed import policy_specs
from pyserve.launch.on_kubernetes.pods import (
    APPLICATION_LABEL,
    DEPLOYMENT_LABEL,
    METRICS_PORT,
    TLS_NAMES,
    TOKEN_KEY,
    ZONE_LABEL,
    field_variable,
    label_value,
    labels_of,
    node_variable,
    plain_variables,
    secret_mounts,
    secret_variables,
    secret_volumes,
    security_of_container,
    security_of_pod,
    spread,
)

Object = dict[str, Any]

FILE = "applications.yaml"
INGRESS_KINDS = ("Deployment", "DaemonSet")
_FILES_FOLDER, _STATE_FOLDER = "/etc/pyserve/applications", "/var/lib/pyserve"
_CONTROLLER_PORT, _INGRESS_PORT = 7000, 8000
# An ingress that is told to end takes new connections for so long, while endpoints are taken away.
_DRAIN_S = 5
# Longer than that and the calls in flight of most; `terminationGracePeriodSeconds` of ingresses.
_INGRESS_GRACE_S = 90
_CONTROLLER_GRACE_S = 30
# A finished job is kept only so that its output can be read.
_JOB_KEPT_S = 3600
_HASH_LENGTH = 10
_POD_SECURITY = "pod-security.kubernetes.io"
_NAMESPACE_VARIABLE = "POD_NAMESPACE"
_PLAIN_TCP_ITEM = re.compile(rf"^( *)- name: {PLAIN_TCP}$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSettings:
    """What differs between meshes.

    Attributes:
        name: of the mesh; its objects begin with it.
        namespace: of all of them.
        image: with pyserve, its extra ``kubernetes``, and the code of the applications.
        token: the mesh token, hexadecimal; "": the Secret comes from elsewhere.
        applications: the file that `pyserve deploy` is given; "": there is none yet.
        deploy: tells the job that does so from those before; part of its name.
        budgets: of each deployment with several replicas, how many an eviction leaves.
        storage: size of the controller's volume.
        storage_class: of that volume; None: the cluster's default.
        ingress_kind: Deployment, or DaemonSet for one on each node.
        ingress_replicas: of a Deployment.
        service_type: of the ingress's Service.
        tls_secret: a Secret with a certificate of ``tls_name`` for all; "": there is none.
        launcher: more options of the launcher.
    """

    name: str = "pyserve"
    namespace: str = "pyserve"
    image: str
    token: str = ""
    applications: str = ""
    deploy: str = "1"
    budgets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    storage: str = "1Gi"
    storage_class: str | None = None
    ingress_kind: str = INGRESS_KINDS[0]
    ingress_replicas: int = 2
    service_type: str = "ClusterIP"
    tls_secret: str = ""
    launcher: Mapping[str, object] = field(default_factory=dict)

    @property
    def token_secret(self) -> str:
        """The Secret with the mesh token."""
        return f"{self.name}-token"

    @property
    def tls_name(self) -> str:
        """Of the controller, and what certificates of all processes have: pods come and go.

        Kubernetes puts the namespace in: an overlay of kustomize changes it where objects name
        theirs, and nowhere else.
        """
        return f"{self.name}-controller.$({_NAMESPACE_VARIABLE}).svc"

    @property
    def controller(self) -> str:
        """Where the controller is reached."""
        return f"{self.tls_name}:{_CONTROLLER_PORT}"


def manifests(settings: ManifestSettings) -> list[Object]:
    """Return all objects, each after those that it needs."""
    return [
        _namespace(settings),
        *_accounts(settings),
        *_rights(settings),
        *_files(settings),
        # Others know its metrics by the name of the Service too, as they know the controller.
        _service(
            settings,
            "controller",
            {"control": _CONTROLLER_PORT, "metrics": METRICS_PORT},
            is_early=True,
        ),
        _controller(settings),
        _service(settings, "ingress", {"serving": _INGRESS_PORT}, kind=settings.service_type),
        _ingress(settings),
        *_budgets(settings),
        *_policies(settings),
        *_job(settings),
    ]


def with_reasons(text: str) -> str:
    """Return a text of objects with a comment at what an operator should know of."""
    return _PLAIN_TCP_ITEM.sub(
        r"\1# Without certificates the mesh token passes between pods in plain text, for whoever\n"
        r"\1# can read the network of the cluster.\n\g<0>",
        text,
    )


def _namespace(settings: ManifestSettings) -> Object:
    metadata: Object = {"name": settings.namespace}
    # Where templates may ask for anything, what pods may do is the operator's to say.
    if not settings.launcher.get("open_pod_templates"):
        names = ("enforce", "audit", "warn")
        metadata["labels"] = {f"{_POD_SECURITY}/{name}": "restricted" for name in names}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _policies(settings: ManifestSettings) -> list[Object]:
    return [
        _object(settings, "networking.k8s.io/v1", "NetworkPolicy", component, spec=spec)
        for component, spec in policy_specs(settings.name).items()
    ]


def _accounts(settings: ManifestSettings) -> list[Object]:
    return [
        _object(settings, "v1", "ServiceAccount", each, automountServiceAccountToken=False)
        for each in ("controller", "ingress")
    ]


def _rights(settings: ManifestSettings) -> list[Object]:
    """Return what the controller may do: make pods in its namespace, and see zones of nodes."""
    group = "rbac.authorization.k8s.io"
    account = {
        "kind": "ServiceAccount",
        "name": f"{settings.name}-controller",
        "namespace": settings.namespace,
    }
    role = _object(
        settings,
        f"{group}/v1",
        "Role",
        "controller",
        rules=[
            _rule(["pods"], ["create", "delete", "get", "list", "watch"]),
            _rule(["pods/log"], ["get"]),
        ],
    )
    nodes = _object(
        settings, f"{group}/v1", "ClusterRole", "nodes", rules=[_rule(["nodes"], ["get"])]
    )
    # It is of the whole cluster, where other meshes may have the same name.
    nodes["metadata"]["name"] = f"{settings.name}-{settings.namespace}-nodes"
    del nodes["metadata"]["namespace"]
    found = [role, nodes]
    for each in (role, nodes):
        metadata = each["metadata"]
        found.append(
            {
                "apiVersion": each["apiVersion"],
                "kind": f"{each['kind']}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": each["kind"], "name": metadata["name"]},
                "subjects": [account],
            }
        )
    return found


def _rule(resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [""], "resources": list(resources), "verbs": list(verbs)}


def _files(settings: ManifestSettings) -> list[Object]:
    found = []
    if settings.token:
        text = base64.b64encode(settings.token.encode()).decode()
        secret = _object(settings, "v1", "Secret", "token", type="Opaque", data={TOKEN_KEY: text})
        found.append(secret)
    if settings.applications:
        data = {FILE: settings.applications}
        found.append(_object(settings, "v1", "ConfigMap", "applications", data=data))
    return found


def _service(
    settings: ManifestSettings,
    component: str,
    ports: Mapping[str, int],
    *,
    kind: str = "ClusterIP",
    is_early: bool = False,
) -> Object:
    return _object(
        settings,
        "v1",
        "Service",
        component,
        spec={
            "type": kind,
            "selector": _selector(settings, component),
            "ports": [
                {"name": name, "port": port, "targetPort": name} for name, port in ports.items()
            ],
            # Replicas join a controller that has just begun, before anybody calls it ready.
            **({"publishNotReadyAddresses": True} if is_early else {}),
        },
    )


def _controller(settings: ManifestSettings) -> Object:
    launcher = {
        "name": settings.name,
        "token_secret": settings.token_secret,
        **({"tls_secret": settings.tls_secret} if settings.tls_secret else {}),
        **settings.launcher,
    }
    container = _container(
        settings,
        ["start", "--no-ingress"],
        {
            "PYSERVE_HOME": f"{_STATE_FOLDER}/home",
            "PYSERVE_LAUNCHER": "kubernetes",
            "PYSERVE_LAUNCHER_OPTIONS": json.dumps(launcher, sort_keys=True),
        },
        ports={"control": _CONTROLLER_PORT, "metrics": METRICS_PORT},
        cpu="100m",
    )
    container["env"].append(field_variable("POD_NAME", "metadata.name"))
    container["volumeMounts"].append({"name": "state", "mountPath": _STATE_FOLDER})
    alive = {"tcpSocket": {"port": "control"}}
    container |= {
        "readinessProbe": {**alive, "periodSeconds": 2},
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 6},
    }
    volume: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": settings.storage}},
    }
    if settings.storage_class is not None:
        volume["storageClassName"] = settings.storage_class
    pod = _pod(settings, "controller", container, _CONTROLLER_GRACE_S)
    pod["spec"]["serviceAccountName"] = f"{settings.name}-controller"
    pod["spec"]["automountServiceAccountToken"] = True
    return _object(
        settings,
        "apps/v1",
        # Of a lost node's it makes no second one: two controllers would start everything twice.
        "StatefulSet",
        "controller",
        spec={
            "replicas": 1,
            "serviceName": f"{settings.name}-controller",
            "selector": {"matchLabels": _selector(settings, "controller")},
            "template": pod,
            "volumeClaimTemplates": [{"metadata": {"name": "state"}, "spec": volume}],
        },
    )


def _ingress(settings: ManifestSettings) -> Object:
    container = _container(
        settings,
        ["ingress", "--address", f"0.0.0.0:{_INGRESS_PORT}"],
        {"PYSERVE_HOME": "/tmp/pyserve", "PYSERVE_INGRESS_DRAIN_S": str(_DRAIN_S)},  # noqa: S108
        ports={"serving": _INGRESS_PORT, "metrics": METRICS_PORT},
        cpu="250m",
    )
    # Of clusters that give pods the topology labels of their nodes; empty elsewhere.
    zone = field_variable("PYSERVE_ZONE", f"metadata.labels['{ZONE_LABEL}']")
    container["env"].append(zone)
    container |= {
        "readinessProbe": {
            "httpGet": {"path": "/-/healthz", "port": "serving"},
            "periodSeconds": 2,
        },
        "livenessProbe": {
            "tcpSocket": {"port": "serving"},
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
    }
    pod = _pod(settings, "ingress", container, _INGRESS_GRACE_S)
    pod["spec"]["serviceAccountName"] = f"{settings.name}-ingress"
    is_counted = settings.ingress_kind == INGRESS_KINDS[0]
    if is_counted:
        pod["spec"]["topologySpreadConstraints"] = spread(_selector(settings, "ingress"))
    return _object(
        settings,
        "apps/v1",
        settings.ingress_kind,
        "ingress",
        spec={
            **({"replicas": settings.ingress_replicas} if is_counted else {}),
            "selector": {"matchLabels": _selector(settings, "ingress")},
            "template": pod,
        },
    )


def _budgets(settings: ManifestSettings) -> list[Object]:
    """Return how many pods an eviction leaves, such as that of a node that is emptied."""
    found = [
        _object(
            settings,
            "policy/v1",
            "PodDisruptionBudget",
            "ingress",
            spec={
                "maxUnavailable": 1,
                "selector": {"matchLabels": _selector(settings, "ingress")},
            },
        )
    ]
    for (application, deployment), left in settings.budgets.items():
        digest = hashlib.sha256(f"{application}/{deployment}".encode()).hexdigest()
        labels = {
            **_selector(settings, "replica"),
            APPLICATION_LABEL: label_value(application),
            DEPLOYMENT_LABEL: label_value(deployment),
        }
        # Of pods without a ReplicaSet or the like only this number can be told.
        spec = {"minAvailable": left, "selector": {"matchLabels": labels}}
        name = f"replicas-{digest[:_HASH_LENGTH]}"
        found.append(_object(settings, "policy/v1", "PodDisruptionBudget", name, spec=spec))
    return found


def _job(settings: ManifestSettings) -> list[Object]:
    """Return what makes the applications of the file those that the mesh runs."""
    if not settings.applications:
        return []
    container = _container(
        settings,
        # It is tried again until the mesh has taken the file. Whether that comes up, status says:
        # a job that went on trying would bring the file back after a later one.
        ["deploy", "--no-wait", f"{_FILES_FOLDER}/{FILE}"],
        {"PYSERVE_HOME": "/tmp/pyserve"},  # noqa: S108
        ports={},
        cpu="100m",
    )
    container["volumeMounts"].append({"name": "applications", "mountPath": _FILES_FOLDER})
    pod = _pod(settings, "deploy", container, _CONTROLLER_GRACE_S)
    pod["spec"]["restartPolicy"] = "OnFailure"
    pod["spec"]["automountServiceAccountToken"] = False
    files = {"name": "applications", "configMap": {"name": f"{settings.name}-applications"}}
    pod["spec"]["volumes"].append(files)
    job = _object(
        settings,
        "batch/v1",
        "Job",
        # A job cannot be changed, and one that is done does nothing for a file that comes back.
        f"deploy-{settings.deploy}",
        spec={
            "backoffLimit": 6,
            "ttlSecondsAfterFinished": _JOB_KEPT_S,
            "template": pod,
        },
    )
    job["metadata"]["labels"] = labels_of(settings.name, "deploy")
    return [job]


def _container(
    settings: ManifestSettings,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    ports: Mapping[str, int],
    cpu: str,
) -> Object:
    everywhere = {
        "PYSERVE_CONTROLLER": settings.controller,
        "PYSERVE_BIND_HOST": "0.0.0.0",  # noqa: S104
        "PYTHONUNBUFFERED": "1",
        **secret_variables(settings.tls_secret),
        **({TLS_NAMES: settings.tls_name} if settings.tls_secret else {PLAIN_TCP: "1"}),
    }
    return {
        "name": "pyserve",
        "image": settings.image,
        "command": ["python", "-P", "-m", "pyserve"],
        "args": list(arguments),
        "env": [
            node_variable(),
            # Before those that name it.
            field_variable(_NAMESPACE_VARIABLE, "metadata.namespace"),
            *plain_variables({**everywhere, **variables}),
        ],
        **(
            {"ports": [{"name": name, "containerPort": port} for name, port in ports.items()]}
            if ports
            else {}
        ),
        "resources": {
            "requests": {"cpu": cpu, "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {**security_of_container(), "readOnlyRootFilesystem": True},
        "volumeMounts": [
            *secret_mounts(settings.tls_secret),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # of the container alone
        ],
    }


def _pod(settings: ManifestSettings, component: str, container: Object, grace_s: int) -> Object:
    return {
        "metadata": {"labels": labels_of(settings.name, component)},
        "spec": {
            "terminationGracePeriodSeconds": grace_s,
            "enableServiceLinks": False,
            "securityContext": security_of_pod(),
            "containers": [container],
            "volumes": [
                *secret_volumes(settings.token_secret, settings.tls_secret),
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    }


def _selector(settings: ManifestSettings, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/instance": settings.name,
        "app.kubernetes.io/component": component,
    }


def _object(
    settings: ManifestSettings, api: str, kind: str, component: str, **content: Any
) -> Object:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": f"{settings.name}-{component}",
            "namespace": settings.namespace,
            "labels": labels_of(settings.name, component),
        },
        **content,
    }
