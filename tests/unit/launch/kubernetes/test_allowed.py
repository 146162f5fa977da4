"""The list of what a deployment's template of pods may say; the rest is the operator's alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.launch.on_kubernetes.allowed import refused_parts
from pyserve.launch.on_kubernetes.pods import PodPlan, pod_of, refusal
from tests.unit.launch.orders import order

PLAN = PodPlan(namespace="shop", name="mesh", mesh="0", image="shop:1", token_secret="token")
HARMLESS: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "shop"},
        "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    },
    "spec": {
        "nodeSelector": {"pool": "a100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "topologySpreadConstraints": [],
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "terminationGracePeriodSeconds": 90,
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "settings", "configMap": {"name": "settings"}},
        ],
        "initContainers": [{"name": "fetch", "image": "fetch:1", "command": ["fetch"]}],
        "containers": [
            {
                "name": "replica",
                "image": "shop:2",
                "env": [
                    {"name": "MODE", "value": "fast"},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
                "resources": {"limits": {"ephemeral-storage": "2Gi"}},
                "readinessProbe": {"httpGet": {"path": "/-/healthz", "port": 8080}},
            },
            {
                "name": "proxy",
                "image": "proxy:1",
                "ports": [{"name": "http", "containerPort": 8080}],
                "securityContext": {"readOnlyRootFilesystem": True, "runAsNonRoot": True},
            },
        ],
    },
}


def with_spec(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def in_container(**content: Any) -> dict[str, Any]:
    return with_spec(containers=[{"name": "replica", **content}])


REFUSED = [
    (with_spec(hostNetwork=True), "spec.hostNetwork"),
    (with_spec(hostPID=True), "spec.hostPID"),
    (with_spec(hostIPC=False), "spec.hostIPC"),
    (with_spec(hostUsers=True), "spec.hostUsers"),
    (with_spec(shareProcessNamespace=True), "spec.shareProcessNamespace"),
    (with_spec(serviceAccountName="pyserve-controller"), "spec.serviceAccountName"),
    (with_spec(serviceAccount="pyserve-controller"), "spec.serviceAccount"),
    (with_spec(automountServiceAccountToken=True), "spec.automountServiceAccountToken"),
    (with_spec(nodeName="control-plane"), "spec.nodeName"),
    (with_spec(runtimeClassName="runc"), "spec.runtimeClassName"),
    (with_spec(ephemeralContainers=[]), "spec.ephemeralContainers"),
    # What takes away that we ask for.
    (with_spec(securityContext=None), "spec.securityContext"),
    (with_spec(securityContext={"runAsNonRoot": None}), "spec.securityContext.runAsNonRoot=None"),
    (with_spec(securityContext={"runAsUser": 0}), "spec.securityContext.runAsUser=0"),
    (with_spec(securityContext={"runAsUser": True}), "spec.securityContext.runAsUser=True"),
    (with_spec(securityContext={"sysctls": []}), "spec.securityContext.sysctls=[]"),
    (
        with_spec(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "spec.securityContext.seccompProfile={'type': 'Unconfined'}",
    ),
    (
        in_container(securityContext={"privileged": True}),
        "spec.containers['replica'].securityContext.privileged=True",
    ),
    (
        in_container(securityContext={"allowPrivilegeEscalation": True}),
        "spec.containers['replica'].securityContext.allowPrivilegeEscalation=True",
    ),
    (
        in_container(securityContext={"capabilities": {"drop": []}}),
        "spec.containers['replica'].securityContext.capabilities={'drop': []}",
    ),
    (
        in_container(securityContext={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}),
        "securityContext.capabilities=",
    ),
    (in_container(securityContext={"procMount": "Unmasked"}), "securityContext.procMount="),
    (
        with_spec(initContainers=[{"name": "a", "securityContext": {"privileged": True}}]),
        "spec.initContainers['a'].securityContext.privileged=True",
    ),
    (in_container(envFrom=[{"secretRef": {"name": "s"}}]), "spec.containers['replica'].envFrom"),
    (
        in_container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        "spec.containers['replica'].env[].valueFrom.secretKeyRef",
    ),
    (
        in_container(ports=[{"containerPort": 80, "hostPort": 80}]),
        "spec.containers['replica'].ports[].hostPort",
    ),
    (
        in_container(volumeMounts=[{"mountPath": "/a", "mountPropagation": "Bidirectional"}]),
        "spec.containers['replica'].volumeMounts[].mountPropagation",
    ),
    (in_container(volumeDevices=[]), "spec.containers['replica'].volumeDevices"),
    (
        in_container(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "spec.containers['replica'].livenessProbe.httpGet.host",
    ),
    (
        in_container(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 22}}}),
        "spec.containers['replica'].lifecycle.preStop.tcpSocket.host",
    ),
    (
        with_spec(volumes=[{"name": "host", "hostPath": {"path": "/"}}]),
        "spec.volumes['host'].hostPath",
    ),
    (
        with_spec(volumes=[{"name": "s", "secret": {"secretName": "other"}}]),
        "spec.volumes['s'].secret",
    ),
    (with_spec(volumes=[{"name": "s", "projected": {}}]), "spec.volumes['s'].projected"),
    (with_spec(volumes=[{"name": "s", "csi": {}}]), "spec.volumes['s'].csi"),
    (with_spec(volumes=[{"name": "s", "nfs": {}}]), "spec.volumes['s'].nfs"),
    (
        with_spec(
            volumes=[
                {"name": "s", "persistentVolumeClaim": {"claimName": "state-mesh-controller-0"}}
            ]
        ),
        "spec.volumes['s'].persistentVolumeClaim of the controller",
    ),
    (
        {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "x"}}},
        "metadata.annotations['container.apparmor.security.beta.kubernetes.io/a']",
    ),
]


def said_of(template: dict[str, Any], *, is_open: bool = False) -> str:
    options = DeploymentOptions.of({"pod_template": template})
    return refusal(options, name="mesh", is_open=is_open)


@pytest.mark.parametrize(("template", "part"), REFUSED, ids=[part for _, part in REFUSED])
def test_what_gives_rights_is_refused_unless_the_operator_opens_it(
    template: dict[str, Any], part: str
) -> None:
    [found] = refused_parts(template, "state-mesh-controller-0")
    assert part in found
    said = said_of(template)
    assert said.startswith(f"it does not take {found} of pod_template")
    assert "open_pod_templates" in said
    assert "" == said_of(template, is_open=True)


def test_each_part_that_is_refused_is_named() -> None:
    said = said_of(with_spec(hostNetwork=True, hostPID=True, nodeSelector={"a": "b"}))

    assert "spec.hostNetwork, spec.hostPID of pod_template" in said


def test_what_says_where_pods_run_and_what_they_hold_is_taken() -> None:
    assert "" == said_of(HARMLESS)


def test_every_container_of_a_pod_is_restricted() -> None:
    """Also those of the template, of which a namespace that is restricted asks the same."""
    given = copy.deepcopy(HARMLESS)
    pod = pod_of(order(pod_template=HARMLESS), PLAN, "controller:7000")["spec"]

    for each in (*pod["containers"], *pod["initContainers"]):
        security = each["securityContext"]
        assert {"drop": ["ALL"]} == security["capabilities"], each["name"]
        assert security["allowPrivilegeEscalation"] is False, each["name"]
    [proxy] = [each for each in pod["containers"] if each["name"] == "proxy"]
    assert proxy["securityContext"]["readOnlyRootFilesystem"], "and what the template says"
    assert given == HARMLESS, "which is not changed"


def test_an_operator_may_have_a_privileged_container_beside() -> None:
    """The API server takes no container that is privileged and may not become so."""
    beside = {"name": "driver", "image": "driver:1", "securityContext": {"privileged": True}}
    plan = PodPlan(
        **{
            **{name: getattr(PLAN, name) for name in PLAN.__slots__},
            "template": with_spec(containers=[beside]),
        }
    )
    pod = pod_of(order(), plan, "controller:7000")["spec"]

    [driver] = [each for each in pod["containers"] if each["name"] == "driver"]
    assert {"privileged": True} == driver["securityContext"]
