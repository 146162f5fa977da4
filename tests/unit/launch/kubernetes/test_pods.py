"""The pod of a replica: what pyserve makes of it, and what users lay over that."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.capabilities import asked
from pyserve.errors import OptionError
from pyserve.launch.on_kubernetes.pods import PodPlan, label_value, pod_name, pod_of, refusal
from pyserve.types import ReplicaId
from tests.unit.launch.orders import ECHO, order

OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "controller", "uid": "u1"}
PLAN = PodPlan(
    namespace="shop",
    name="mesh",
    mesh="0123456789ab",
    image="registry.example/app:1",
    token_secret="mesh-token",
    environment={"PYSERVE_LOG_LEVEL": "INFO"},
    template={"spec": {"nodeSelector": {"pool": "serving"}}},
    owner=OWNER,
)


def made(plan: PodPlan = PLAN, **options: Any) -> dict[str, Any]:
    return pod_of(order(**options), plan, "controller.shop.svc:7000")


def container(pod: dict[str, Any], name: str = "replica") -> dict[str, Any]:
    [found] = [each for each in pod["spec"]["containers"] if each["name"] == name]
    assert isinstance(found, dict)
    return found


def test_a_pod_is_one_replica_with_its_owner() -> None:
    pod = made()

    metadata, spec = pod["metadata"], pod["spec"]
    assert ("shop", [OWNER]) == (metadata["namespace"], metadata["ownerReferences"])
    assert {"pyserve/replica": ECHO} == metadata["annotations"]
    assert "0123456789ab" == metadata["labels"]["pyserve/mesh"]
    assert ("Never", 24) == (spec["restartPolicy"], spec["terminationGracePeriodSeconds"])
    assert {"pool": "serving"} == spec["nodeSelector"]
    replica = container(pod)
    assert "registry.example/app:1" == replica["image"]
    assert ["--controller", "controller.shop.svc:7000", "--replica-id", ECHO] == (
        replica["args"][:4]
    )


def test_the_token_comes_from_its_secret_and_the_node_from_the_cluster() -> None:
    pod = made()
    variables = {each["name"]: each for each in container(pod)["env"]}

    assert "/etc/pyserve/token/token" == variables["PYSERVE_TOKEN_FILE"]["value"]
    [mount] = container(pod)["volumeMounts"]
    [volume] = pod["spec"]["volumes"]
    assert ("/etc/pyserve/token", "mesh-token") == (
        mount["mountPath"],
        volume["secret"]["secretName"],
    )
    field = variables["PYSERVE_NODE_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert "spec.nodeName" == field
    assert "INFO" == variables["PYSERVE_LOG_LEVEL"]["value"]


def test_certificates_come_from_a_secret_that_others_renew() -> None:
    plan = PodPlan(**{**{name: getattr(PLAN, name) for name in PLAN.__slots__}, "tls_secret": "c"})
    variables = {each["name"]: each.get("value") for each in container(made(plan))["env"]}

    assert "/etc/pyserve/tls/tls.crt" == variables["PYSERVE_MESH_TLS_CERT_FILE"]
    assert "/etc/pyserve/tls/ca.crt" == variables["PYSERVE_MESH_TLS_CA_FILE"]


def test_env_vars_of_a_deployment_win() -> None:
    replica = container(made(env_vars={"PYSERVE_LOG_LEVEL": "DEBUG", "A": "1"}))

    variables = {each["name"]: each.get("value") for each in replica["env"]}
    assert ("DEBUG", "1") == (variables["PYSERVE_LOG_LEVEL"], variables["A"])


@pytest.mark.parity("G-11")
@pytest.mark.parametrize(
    ("wanted", "amounts"),
    [
        ({}, {}),
        ({"num_cpus": 0.25}, {"requests": {"cpu": "250m"}}),
        ({"num_cpus": 2}, {"requests": {"cpu": "2000m"}}),
        (
            {"num_gpus": 1, "memory": 2e9},
            {
                "requests": {"nvidia.com/gpu": "1", "memory": "2000000000"},
                "limits": {"nvidia.com/gpu": "1", "memory": "2000000000"},
            },
        ),
        (
            {"resources": {"example.com/lens": 2}},
            {
                "requests": {"example.com/lens": "2"},
                "limits": {"example.com/lens": "2"},
            },
        ),
    ],
)
def test_resources_are_those_of_its_container(
    wanted: dict[str, Any], amounts: dict[str, Any]
) -> None:
    assert amounts == container(made(resources=wanted))["resources"]


def test_numerical_libraries_have_as_many_threads_as_processors() -> None:
    variables = {each["name"]: each.get("value") for each in container(made())["env"]}
    more = container(made(resources={"num_cpus": 3}))["env"]

    assert "1" == variables["OMP_NUM_THREADS"]
    assert {"name": "OMP_NUM_THREADS", "value": "3"} in more


def test_labels_choose_the_node_and_fallbacks_will_do() -> None:
    actor = {
        "label_selector": {"ray.io/availability-zone": "a", "disk": "!in(slow, old)"},
        "fallback_strategy": [{"label_selector": {"disk": "in(fast,new)"}}],
    }

    affinity = made(ray_actor_options=actor)["spec"]["affinity"]["nodeAffinity"]

    first = [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
        {"key": "disk", "operator": "NotIn", "values": ["slow", "old"]},
    ]
    second = [{"key": "disk", "operator": "In", "values": ["fast", "new"]}]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [first, second] == [each["matchExpressions"] for each in required]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [100, 50] == [each["weight"] for each in preferred]


def test_a_fallback_without_labels_lets_it_lie_anywhere() -> None:
    actor = {"label_selector": {"disk": "fast"}, "fallback_strategy": [{}]}

    affinity = made(ray_actor_options=actor)["spec"]["affinity"]["nodeAffinity"]

    assert ["preferredDuringSchedulingIgnoredDuringExecution"] == list(affinity)


@pytest.mark.parity("G-13")
def test_one_on_each_node_is_told_to_the_scheduler_for_each_version() -> None:
    affinity = made(max_replicas_per_node=1)["spec"]["affinity"]["podAntiAffinity"]

    [apart] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "kubernetes.io/hostname" == apart["topologyKey"]
    assert "1a2b3c4d.3" == apart["labelSelector"]["matchLabels"]["pyserve/version"]


def test_replicas_lie_apart_where_that_can_be() -> None:
    zone, host = made()["spec"]["topologySpreadConstraints"]

    assert ("topology.kubernetes.io/zone", "ScheduleAnyway") == (
        zone["topologyKey"],
        zone["whenUnsatisfiable"],
    )
    assert "Echo" == host["labelSelector"]["matchLabels"]["pyserve/deployment"]


@pytest.mark.parity("G-32")
def test_replicas_lie_together_where_the_mesh_says_so() -> None:
    plan = PodPlan(**{**{name: getattr(PLAN, name) for name in PLAN.__slots__}, "packs": True})
    pod = pod_of(order(max_replicas_per_node=1), plan, "mesh:1")

    assert "topologySpreadConstraints" not in pod["spec"]
    affinity = pod["spec"]["affinity"]
    [near] = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = near["podAffinityTerm"]
    assert ("kubernetes.io/hostname", 100) == (term["topologyKey"], near["weight"])
    # Of any deployment of this mesh, and no ingress of it.
    labels = term["labelSelector"]["matchLabels"]
    assert {"app.kubernetes.io/component": "replica", "pyserve/mesh": PLAN.mesh} == labels
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert "podAntiAffinity" in affinity


TEMPLATE = {
    "metadata": {"labels": {"team": "shop", "pyserve/mesh": "stolen"}},
    "spec": {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "models", "emptyDir": {}}],
        "containers": [
            {
                "name": "replica",
                "image": "registry.example/echo:2",
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            },
            {"name": "proxy", "image": "proxy:1"},
        ],
    },
}


def test_a_template_of_the_deployment_is_laid_over_all_of_it() -> None:
    pod = made(pod_template=TEMPLATE)

    assert "registry.example/echo:2" == container(pod)["image"]
    assert ["python", "-P", "-m", "pyserve.replica"] == container(pod)["command"]
    assert ["/etc/pyserve/token", "/models"] == [
        each["mountPath"] for each in container(pod)["volumeMounts"]
    ]
    assert ["pyserve-token", "models"] == [each["name"] for each in pod["spec"]["volumes"]]
    assert "proxy:1" == container(pod, "proxy")["image"]
    assert {"pool": "serving"} == pod["spec"]["nodeSelector"]
    labels = pod["metadata"]["labels"]
    assert ("shop", "0123456789ab") == (labels["team"], labels["pyserve/mesh"])


def test_a_template_travels_and_stands_where_somebody_wrote_it() -> None:
    options = DeploymentOptions.of({"pod_template": TEMPLATE})

    assert ["pod_template"] == list(asked(DeploymentOptions.from_json(options.to_json())))
    assert "pod_template" not in DeploymentOptions().to_json()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ([], "pod_template"),
        ({"sepc": {}}, "did you mean 'spec'?"),
        ({"metadata": {"name": "x"}}, "pod_template.metadata has no option 'name'"),
        ({"metadata": {"labels": {"a": 1}}}, "pod_template.metadata.labels"),
        ({"spec": {"containers": {"name": "replica"}}}, "pod_template.spec.containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "each with a 'name'"),
        (
            {"spec": {"containers": [{"name": "replica", "env": {"A": "1"}}]}},
            "pod_template.spec.containers['replica'].env",
        ),
    ],
)
def test_a_template_of_another_shape_is_refused_where_it_is_written(
    template: Any, said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        DeploymentOptions.of({"pod_template": template})

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resources": {"num_gpus": 0.5}}, "resources.num_gpus=0.5: devices of a pod are whole"),
        ({"resources": {"resources": {"lens": 1}}}, "has a name such as example.com/lens"),
        ({"resources": {"resources": {"a.b/lens": 0.5}}}, "['a.b/lens']=0.5: amounts are whole"),
        ({"max_replicas_per_node": 2}, "max_replicas_per_node=2, but only 1"),
        ({"working_dir": "code.zip"}, "working_dir as an archive"),
        (
            {"ray_actor_options": {"label_selector": {"a": "in(b"}}},
            "resources.label_selector['a']='in(b'",
        ),
        (
            {"ray_actor_options": {"fallback_strategy": [{"memory": 1}]}},
            "memory of resources.fallback_strategy",
        ),
        ({"pod_template": {"spec": {"restartPolicy": "Always"}}}, "restartPolicy"),
        (
            {"pod_template": {"spec": {"containers": [{"name": "replica", "args": ["x"]}]}}},
            "args of the container 'replica'",
        ),
        (
            {"max_replicas_per_node": 1, "pod_template": {"spec": {"affinity": {}}}},
            "affinity of pod_template beside",
        ),
    ],
)
def test_values_that_a_cluster_cannot_give_are_named(options: dict[str, Any], said: str) -> None:
    told = refusal(DeploymentOptions.of(options))

    assert told.startswith("it cannot give ")
    assert said in told


def test_what_a_cluster_can_give_is_not_refused() -> None:
    given = {"num_gpus": 2, "label_selector": {"a": "!b"}, "resources": {"a.b/c": 1}}

    assert "" == refusal(DeploymentOptions.of({"resources": given, "max_replicas_per_node": 1}))


def test_names_are_those_that_the_cluster_takes_and_each_its_own() -> None:
    long = ReplicaId(f"{'Very_Long.Name' * 9}#abcde")
    names = {
        pod_name(PLAN, ECHO, "shop"),
        pod_name(PLAN, ECHO, "other"),
        pod_name(PLAN, ReplicaId("echo#abcde"), "shop"),
        pod_name(PLAN, ReplicaId("_#abcde"), "shop"),
        pod_name(PLAN, long, "shop"),
    }

    assert 5 == len(names)
    for name in names:
        assert len(name) <= 63
        assert name.replace("-", "").isalnum()
        assert name == name.lower().strip("-")
    assert pod_name(PLAN, ECHO, "shop").startswith("echo-abcde-")


@pytest.mark.parametrize("text", ["Echo", "a.b_c-d", "1a2b.3"])
def test_a_label_is_the_text_itself_where_that_can_be(text: str) -> None:
    assert text == label_value(text)


@pytest.mark.parametrize("text", ["_Echo", "x" * 64, "a/b", "", "-"])
def test_another_text_becomes_a_label_with_its_hash(text: str) -> None:
    label = label_value(text)

    assert len(label) <= 63
    assert label[0].isalnum()
    assert label != label_value(text + "y")
