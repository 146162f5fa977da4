"""A file of applications: what is wrong is told with line, column and what may be meant."""

import json
from pathlib import Path

import pytest

from pyserve.config.files import MeshFile, dump
from pyserve.config.schema import ServeDeploySchema, json_schema
from pyserve.errors import UsageError

_GOOD = """\
applications:
  - name: shop
    import_path: shop.app:app
    deployments:
      - name: Cart
        num_replicas: 2
"""


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as refused:
        MeshFile("serve.yaml", text)
    return str(refused.value)


@pytest.mark.parity("G-59")
@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("        num_replica: 3", "7:9", "did you mean 'num_replicas'?"),
        ("        max_ongoing_requests: 0", "7:9", "max_ongoing_requests=0 is not allowed"),
        ("        autoscaling_config: {min_replica: 1}", "7:9", "did you mean 'min_replicas'?"),
        ("        ray_actor_options: {num_cpu: 1}", "7:29", "did you mean 'num_cpus'?"),
        ("        num_gpus: 1", "7:9", "it belongs in 'resources'"),
        ("        max_replica: 1", "7:9", "did you mean 'max_replicas' in 'autoscaling_config'?"),
        ("        deployment_actors: [1]", "7:9", "deployment_actors"),
        ("        env_vars: {A: 1}", "7:9", "env_vars"),
        ("    arg: {}", "7:5", "did you mean 'args'?"),
        ("    route_prefix: shop", "2:5", "begins with a slash"),
        ("    port: 8000", "1:1", "write it under http_options"),
        ("http_option: {}", "7:1", "did you mean 'http_options'?"),
        ("http_options: {port: 70000}", "7:1", "http_options.port=70000"),
        ("http_options: {prot: 7000}", "7:16", "did you mean 'port'?"),
        ("proxy_location: Everywhere", "7:1", "'EveryNode'"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(line: str, place: str, said: str) -> None:
    text = refusal(f"{_GOOD}{line}\n")

    assert text.startswith(f"serve.yaml:{place}: ")
    assert said in text


@pytest.mark.parity("G-59")
@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("applications: [\n", "2:1", "this is no YAML"),
        ("applications:\n  - a: 'x\n", "3:1", "this is no YAML"),
        ("applications: []\napplications: []\n", "2:1", "'applications' stands twice"),
        ("a:\n\tb: 1\n", "2:1", "this is no YAML"),
        ("- a\n", "1:1", "a mapping is expected"),
        ("applications:\n- import_path: a:b\n  args: {day: 2026-01-01}\n", "3:15", "timestamp"),
        ("x: !!python/object:os.system {}\n", "1:4", "this is no YAML"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_place(text: str, place: str, said: str) -> None:
    assert f"serve.yaml:{place}: " in refusal(text)
    assert said in refusal(text)


def test_several_mistakes_are_told_at_once() -> None:
    lines = refusal(f"{_GOOD}        num_replica: 3\n        max_surge: 1\n").splitlines()

    assert ["serve.yaml:7:9", "serve.yaml:8:9"] == [each.partition(": ")[0] for each in lines]


@pytest.mark.parametrize("text", ["", "# nothing\n", "applications:\n"])
def test_a_file_without_applications_is_none(text: str) -> None:
    assert "applications" in refusal(text)


def test_an_empty_list_asks_for_a_mesh_that_runs_nothing() -> None:
    assert [] == MeshFile("serve.yaml", "applications: []").content.applications


def test_json_is_read_too() -> None:
    values = {"applications": [{"import_path": "a:b", "args": {"text": "\u00e9\n"}}]}

    assert values == MeshFile("serve.json", json.dumps(values)).values


def test_anchors_are_what_they_stand_for() -> None:
    text = "applications:\n- import_path: a:b\n  args: {one: &x [1], two: *x}\n"

    assert {"one": [1], "two": [1]} == MeshFile("f", text).content.applications[0].args


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")

    for name, said in (("none.yaml", "No such file"), ("binary.yaml", "no text in UTF-8")):
        with pytest.raises(UsageError, match=said):
            MeshFile.read(tmp_path / name)


def test_what_is_dumped_is_read_again() -> None:
    values = MeshFile("serve.yaml", _GOOD).values

    assert values == MeshFile("again.yaml", dump(values)).values


@pytest.mark.parity("G-59")
def test_the_json_schema_knows_every_name_and_no_other() -> None:
    schema = json_schema()
    deployment = schema["$defs"]["DeploymentSchema"]

    assert ServeDeploySchema.model_fields.keys() == schema["properties"].keys()
    assert {"serializer", "env_vars", "num_replicas", "runtime_env"} <= deployment[
        "properties"
    ].keys()
    assert [False] * 2 == [schema["additionalProperties"], deployment["additionalProperties"]]


@pytest.mark.parity("G-59")
@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("autoscaling_config", {"min_replicas", "target_p99_s", "smoothing_factor"}),
        ("backpressure_config", {"status_code"}),
        ("batching_config", {"max_batch_size", "timeout_s", "batch_wait_timeout_s"}),
        ("request_router_config", {"policy", "max_attempts", "request_router_class"}),
        ("resources", {"num_cpus"}),
    ],
)
def test_the_json_schema_knows_the_names_within_options(option: str, known: set[str]) -> None:
    schema = json_schema()["$defs"]["DeploymentSchema"]["properties"][option]

    assert known <= schema["properties"].keys()
    assert not schema["additionalProperties"]


def test_the_json_schema_knows_what_a_number_of_replicas_is() -> None:
    number = json_schema()["$defs"]["DeploymentSchema"]["properties"]["num_replicas"]

    assert [{"type": "integer"}, {"const": "auto"}, {"type": "null"}] == number["anyOf"]
