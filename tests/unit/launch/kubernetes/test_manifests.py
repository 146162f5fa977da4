"""What somebody applies, and that the chart and the base say the same."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.release import kubernetes_files
from deploy.release.kubernetes_files import FOLDER, NOT_IN_BASE
from pyserve.cli.commands import commands
from pyserve.config import read_settings
from pyserve.launch.on_kubernetes.manifests import ManifestSettings, manifests
from pyserve.launch.on_kubernetes.pods import METRICS_PORT, PodPlan, pod_of
from pyserve.launch.on_kubernetes.site import RIGHTS
from tests.support.helm_templates import render
from tests.unit.launch.orders import order

pytestmark = pytest.mark.parity("G-69")
TOKEN = "ab" * 32
APPLICATIONS = "applications:\n- name: shop\n  import_path: shop:app\n"
SETTINGS = ManifestSettings(
    name="mesh",
    namespace="serving",
    image="shop:1",
    token=TOKEN,
    applications=APPLICATIONS,
    budgets={("shop", "Echo"): 2},
)


def found(kind: str, name: str = "", settings: ManifestSettings = SETTINGS) -> dict[str, Any]:
    [one] = [
        each
        for each in manifests(settings)
        if each["kind"] == kind and each["metadata"]["name"].startswith(name)
    ]
    return one


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_all_of_a_mesh_is_there_in_an_order_in_which_it_can_be_applied() -> None:
    kinds = [each["kind"] for each in manifests(SETTINGS)]

    assert [
        *("Namespace", "ServiceAccount", "ServiceAccount"),
        *("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret", "ConfigMap"),
        *("Service", "StatefulSet", "Service", "Deployment"),
        *("PodDisruptionBudget", "PodDisruptionBudget"),
        *4 * ("NetworkPolicy",),
        "Job",
    ] == kinds


def test_the_controller_may_do_what_its_launcher_does_and_hardly_more() -> None:
    may = {
        (verb, resource)
        for rule in found("Role")["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    does = {(verb, "/".join(filter(None, (what, part)))) for verb, what, part in RIGHTS}

    # Of its own pod it reads who keeps it.
    assert {*does, ("get", "pods")} == may
    assert [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}] == (
        found("ClusterRole")["rules"]
    )


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "mesh"), ("Deployment", "mesh")])
def test_services_and_budgets_select_the_pods_that_are_meant(kind: str, name: str) -> None:
    keeper = found(kind, name)
    labels = keeper["spec"]["template"]["metadata"]["labels"]
    service = found("Service", keeper["metadata"]["name"])["spec"]

    assert selects(keeper["spec"]["selector"]["matchLabels"], labels)
    assert selects(service["selector"], labels)
    [container] = keeper["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for port in service["ports"]:
        assert ports[port["targetPort"]] == port["port"]


def test_metrics_of_the_controller_are_where_others_are_told() -> None:
    """It is known by the name of its Service, at the port of its metrics too."""
    inside, outside = (
        found("Service", f"mesh-{each}")["spec"] for each in ("controller", "ingress")
    )

    ports = {each["name"]: each["port"] for each in inside["ports"]}
    assert {"control": 7000, "metrics": METRICS_PORT} == ports
    assert ["serving"] == [each["name"] for each in outside["ports"]], "it may be known outside"


@pytest.mark.parity("S-74")
def test_a_budget_keeps_the_replicas_of_a_deployment() -> None:
    budget = found("PodDisruptionBudget", "mesh-replicas")["spec"]
    plan = PodPlan(namespace="serving", name="mesh", mesh="0", image="shop:1", token_secret="t")
    pod = pod_of(order(), plan, "c:1")

    assert 2 == budget["minAvailable"]
    assert selects(budget["selector"]["matchLabels"], pod["metadata"]["labels"])


def test_every_process_has_the_token_by_a_file_and_finds_the_controller() -> None:
    pods = [
        each["spec"]["template"]["spec"]
        for each in manifests(SETTINGS)
        if each["kind"] in ("StatefulSet", "Deployment", "Job")
    ]
    assert 3 == len(pods)
    for pod in pods:
        [container] = pod["containers"]
        variables = expanded(container, "serving")
        assert "mesh-controller.serving.svc:7000" == variables["PYSERVE_CONTROLLER"]
        assert "/etc/pyserve/token/token" == variables["PYSERVE_TOKEN_FILE"]
        assert "mesh-token" == pod["volumes"][0]["secret"]["secretName"]
        assert TOKEN not in json.dumps(pod)
    assert TOKEN == base64.b64decode(found("Secret")["data"]["token"]).decode()


def expanded(container: dict[str, Any], namespace: str) -> dict[str, str]:
    """Return variables as a pod of the namespace has them: each may name those before it."""
    fields = {"metadata.namespace": namespace}
    found: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = re.sub(
                r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), each["value"]
            )
        elif (path := each["valueFrom"]["fieldRef"]["fieldPath"]) in fields:
            found[each["name"]] = fields[path]
    return found


def test_certificates_are_checked_for_a_name_that_does_not_change_with_pods() -> None:
    settings = replace(SETTINGS, tls_secret="mesh-tls")
    for kind in ("StatefulSet", "Deployment", "Job"):
        [container] = found(kind, settings=settings)["spec"]["template"]["spec"]["containers"]
        variables = expanded(container, "serving")
        assert "mesh-controller.serving.svc" == variables["PYSERVE_MESH_TLS_NAMES"]
        assert variables["PYSERVE_CONTROLLER"].startswith("mesh-controller.serving.svc:")


@pytest.mark.parametrize("tls_secret", ["", "mesh-tls"])
def test_a_namespace_is_named_where_an_overlay_changes_it_and_nowhere_else(tls_secret: str) -> None:
    """As the field ``namespace`` of a kustomization does: of objects, and of their accounts."""
    settings = replace(SETTINGS, namespace="elsewhere", tls_secret=tls_secret)

    for each in json.loads(json.dumps(manifests(settings))):
        if each["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            assert "elsewhere" == each["metadata"].pop("namespace")
        for subject in each.get("subjects", ()):
            assert "elsewhere" == subject.pop("namespace")
        of_cluster = each["metadata"].pop("name"), each.get("roleRef", {}).pop("name", None)
        assert "elsewhere" not in json.dumps(each), of_cluster


def test_the_token_passes_in_plain_text_only_where_no_certificates_are_and_says_so() -> None:
    for tls_secret, switch in (("", "1"), ("mesh-tls", None)):
        settings = replace(SETTINGS, tls_secret=tls_secret)
        for kind in ("StatefulSet", "Deployment", "Job"):
            [container] = found(kind, settings=settings)["spec"]["template"]["spec"]["containers"]
            variables = {each["name"]: each.get("value") for each in container["env"]}
            assert switch == variables.get("PYSERVE_MESH_PLAIN_TCP")
            read = {name: value for name, value in variables.items() if value is not None}
            assert read_settings(read).node.may_carry_token(read["PYSERVE_CONTROLLER"])
    printed = CliRunner().invoke(commands, ["kubernetes", "manifests", "--image", "shop:1"]).output
    assert 2 == printed.count("# Without certificates the mesh token passes between pods")


def test_pods_fit_the_restricted_standard_of_pod_security() -> None:
    for each in manifests(SETTINGS):
        if each["kind"] in ("StatefulSet", "Deployment", "Job"):
            pod = each["spec"]["template"]["spec"]
            security = pod["containers"][0]["securityContext"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert "RuntimeDefault" == pod["securityContext"]["seccompProfile"]["type"]
            assert {"drop": ["ALL"]} == security["capabilities"]
            assert security["allowPrivilegeEscalation"] is False


def test_processes_of_the_mesh_write_to_volumes_alone() -> None:
    for each in manifests(SETTINGS):
        if each["kind"] in ("StatefulSet", "Deployment", "Job"):
            pod = each["spec"]["template"]["spec"]
            [container] = pod["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"], each["kind"]
            writable = {
                mount["mountPath"]
                for mount in container["volumeMounts"]
                if {"name": mount["name"], "emptyDir": {}} in pod["volumes"]
                or mount["name"] == "state"
            }
            home = {each["name"]: each.get("value") for each in container["env"]}["PYSERVE_HOME"]
            assert any(home.startswith(f"{place}/") for place in writable), each["kind"]


def test_the_namespace_is_restricted_unless_templates_may_say_anything() -> None:
    labels = found("Namespace")["metadata"]["labels"]
    assert "restricted" == labels["pod-security.kubernetes.io/enforce"]
    opened = replace(SETTINGS, launcher={"open_pod_templates": True})
    assert "labels" not in found("Namespace", settings=opened)["metadata"]


@pytest.mark.parametrize(
    ("component", "ports"),
    [("controller", ["metrics"]), ("ingress", ["serving", "metrics"]), ("replica", ["metrics"])],
)
def test_who_is_of_no_mesh_reaches_what_is_meant_for_all(component: str, ports: list[str]) -> None:
    spec = found("NetworkPolicy", f"mesh-{component}")["spec"]
    [inside, outside] = spec["ingress"]

    assert ["Ingress"] == spec["policyTypes"]
    assert {"from": [{"podSelector": {"matchLabels": OF_MESH}}]} == inside, "of this namespace"
    assert {"ports": [{"port": each} for each in ports]} == outside
    assert selects(spec["podSelector"]["matchLabels"], labels_of_pods()[component])


def test_nobody_connects_to_what_deploys() -> None:
    spec = found("NetworkPolicy", "mesh-deploy")["spec"]

    assert [] == spec["ingress"]
    assert selects(spec["podSelector"]["matchLabels"], labels_of_pods()["deploy"])


OF_MESH = {"app.kubernetes.io/instance": "mesh"}


def labels_of_pods() -> dict[str, dict[str, str]]:
    """Return the labels of pods by their components; all are of the mesh."""
    plan = PodPlan(namespace="serving", name="mesh", mesh="0", image="shop:1", token_secret="t")
    pods = [pod_of(order(), plan, "c:1")]
    pods += [
        each["spec"]["template"]
        for each in manifests(SETTINGS)
        if "template" in each.get("spec", {})
    ]
    labels = [each["metadata"]["labels"] for each in pods]
    assert all(selects(OF_MESH, each) for each in labels)
    return {each["app.kubernetes.io/component"]: each for each in labels}


def test_a_job_gives_the_mesh_the_file_and_brings_none_back_after_a_later_one() -> None:
    job = found("Job", settings=replace(SETTINGS, deploy="7"))
    pod = job["spec"]["template"]["spec"]

    assert "mesh-deploy-7" == job["metadata"]["name"]
    [container] = pod["containers"]
    assert ["deploy", "--no-wait", "/etc/pyserve/applications/applications.yaml"] == (
        container["args"]
    )
    assert "OnFailure" == pod["restartPolicy"], "the controller may not be there yet"


@pytest.mark.parity("G-40")
def test_an_ingress_may_be_on_each_node() -> None:
    settings = ManifestSettings(image="shop:1", ingress_kind="DaemonSet")

    assert "replicas" not in found("DaemonSet", settings=settings)["spec"]
    assert 2 == found("Deployment")["spec"]["replicas"]


# --- What deploy/kubernetes has -------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(kubernetes_files.files()))
def test_the_files_in_deploy_are_those_that_are_written_now(path: str) -> None:
    assert kubernetes_files.files()[path] == (FOLDER / path).read_text(), "run make gen"


def normal(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects with the launcher's options read, whose JSON is written in several ways."""
    text = [each for each in json.loads(json.dumps(objects)) if each]
    for each in text:
        for container in (
            each.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        ):
            for variable in container["env"]:
                if variable["name"] == "PYSERVE_LAUNCHER_OPTIONS":
                    variable["value"] = json.loads(variable["value"])
    return sorted(text, key=lambda each: (each["kind"], each["metadata"]["name"]))


CHART_VALUES = {
    "image": "shop:1",
    "token": TOKEN,
    "applications": APPLICATIONS,
    "launcher": {"pod_template": {"spec": {"nodeSelector": {"pool": "serving"}}}},
    "storage": {"size": "2Gi", "class": "fast"},
    "ingress": {"replicas": 3, "serviceType": "NodePort"},
    "tlsSecret": "mesh-tls",
    "networkPolicies": True,
}
AS_VALUES = ManifestSettings(
    name="mesh",
    namespace="serving",
    image="shop:1",
    token=TOKEN,
    applications=APPLICATIONS,
    storage="2Gi",
    storage_class="fast",
    ingress_replicas=3,
    service_type="NodePort",
    tls_secret="mesh-tls",
    launcher=CHART_VALUES["launcher"],  # type: ignore[arg-type]  # one of several kinds
)


def without_namespace(settings: ManifestSettings) -> list[dict[str, Any]]:
    return normal([each for each in manifests(settings) if each["kind"] != "Namespace"])


def test_the_chart_says_what_the_command_prints() -> None:
    template = (FOLDER / "chart" / "templates" / "mesh.yaml").read_text()

    text = render(template, CHART_VALUES, name="mesh", namespace="serving")

    assert without_namespace(AS_VALUES) == normal(list(yaml.safe_load_all(text)))


def test_each_revision_of_a_release_deploys() -> None:
    template = (FOLDER / "chart" / "templates" / "mesh.yaml").read_text()

    text = render(template, CHART_VALUES, name="mesh", namespace="serving", revision=4)

    [job] = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Job"]
    assert "mesh-deploy-4" == job["metadata"]["name"]


def test_the_chart_says_so_with_its_own_values_too() -> None:
    """No class of volumes, and nothing to deploy."""
    chart = FOLDER / "chart"
    values = yaml.safe_load((chart / "values.yaml").read_text()) | {"token": TOKEN}
    template = (chart / "templates" / "mesh.yaml").read_text()

    text = render(template, values, name="mesh", namespace="serving")

    settings = ManifestSettings(
        name="mesh", namespace="serving", image=values["image"], token=TOKEN
    )
    assert without_namespace(settings) == normal(list(yaml.safe_load_all(text)))


BASE = ManifestSettings(image=kubernetes_files.IMAGE)


def in_base() -> list[dict[str, Any]]:
    return [each for each in without_namespace(BASE) if each["kind"] not in NOT_IN_BASE]


def test_the_base_says_what_the_command_prints_but_for_what_an_overlay_brings() -> None:
    kustomization = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text())
    assert {"apiVersion", "kind", "resources"} == kustomization.keys(), "nothing that changes them"

    objects = [
        each
        for name in kustomization["resources"]
        for each in yaml.safe_load_all((FOLDER / "base" / name).read_text())
    ]

    assert in_base() == normal(objects)


# --- The command ----------------------------------------------------------------------------------

FILE = """\
launcher:
  name: kubernetes
  image: shop:1
  pod_template: {spec: {nodeSelector: {pool: serving}}}
applications:
- name: shop
  import_path: shop:app
  deployments:
  - {name: Echo, num_replicas: 3}
  - name: Scaled
    num_replicas: auto
    autoscaling_config: {min_replicas: 4, max_replicas: 9}
  - {name: Single}
"""


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(commands, ["kubernetes", "manifests", *arguments])


def test_the_command_prints_what_its_file_says(tmp_path: Path) -> None:
    file, token = tmp_path / "app.yaml", tmp_path / "token"
    file.write_text(FILE)
    token.touch(0o600)
    token.write_text(TOKEN)

    done = invoke(str(file), "--token-file", str(token), "--name", "mesh", "--ingress", "daemonset")

    assert 0 == done.exit_code, done.output
    objects = list(yaml.safe_load_all(done.stdout))
    by_kind = {each["kind"]: each for each in objects}
    assert TOKEN == base64.b64decode(by_kind["Secret"]["data"]["token"]).decode()
    assert "DaemonSet" in by_kind
    deployed = yaml.safe_load(by_kind["ConfigMap"]["data"]["applications.yaml"])
    assert ["applications"] == list(deployed), "the launcher is the mesh's own"
    [container] = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert {
        "name": "mesh",
        "token_secret": "mesh-token",
        "pod_template": {"spec": {"nodeSelector": {"pool": "serving"}}},
    } == json.loads(variables["PYSERVE_LAUNCHER_OPTIONS"])
    least = [
        each["spec"].get("minAvailable") for each in objects if each["kind"].endswith("Budget")
    ]
    assert [None, 2, 3] == least


def test_without_a_token_each_print_has_a_new_one() -> None:
    texts = [invoke("--image", "shop:1").stdout for _ in range(2)]

    assert texts[0] != texts[1]
    assert "kind: Job" not in texts[0]


def test_each_print_of_a_file_deploys_it(tmp_path: Path) -> None:
    """Also one that was deployed before another one."""
    file = tmp_path / "app.yaml"
    file.write_text(FILE)
    printed = [yaml.safe_load_all(invoke(str(file)).stdout) for _ in range(2)]

    names = {each["metadata"]["name"] for text in printed for each in text if each["kind"] == "Job"}

    assert 2 == len(names)


@pytest.mark.parametrize(
    ("text", "arguments", "status", "said"),
    [
        ("applications: []\n", [], 2, "no image is named"),
        ("launcher: ray\napplications: []\n", ["--image", "a"], 1, "names the launcher 'ray'"),
        (
            "launcher: {name: kubernetes, namespace: x}\napplications: []\n",
            ["--image", "a"],
            1,
            "launcher.namespace of the file is told by --namespace here",
        ),
        (
            "launcher: {name: kubernetes, colour: red}\napplications: []\n",
            ["--image", "a"],
            1,
            "has no option colour",
        ),
        ("applications: []\n", ["--image", "a", "--token-file", "/none"], 1, "cannot be read"),
    ],
)
def test_what_cannot_be_printed_is_one_message(
    text: str, arguments: list[str], status: int, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(text)

    done = subprocess_like(str(file), *arguments)

    assert (status, True) == (done[0], said in done[1]), done


def subprocess_like(*arguments: str) -> tuple[object, str]:
    """Return the exit status and the messages of the command, as the program has them."""
    done = invoke(*arguments)
    error = done.exception
    if isinstance(error, SystemExit | type(None)):
        return done.exit_code, done.output
    return 1, str(error)
