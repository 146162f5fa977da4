"""Options that are accepted but have no effect are reported once, where they are deployed."""

import dataclasses
import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

import pyserve
from pyserve.api.graph import pack
from pyserve.cli.applications import load_file
from pyserve.config import AutoscalingConfig, DeploymentOptions, older_names, unknown_names
from pyserve.config.capabilities import OF_LAUNCHERS
from pyserve.config.files import MeshFile
from pyserve.config.unneeded import lines_on_options
from pyserve.driver.ingress_options import IngressOptions
from pyserve.errors import OptionError
from pyserve.types import ApplicationName

PACKAGE = Path(pyserve.__file__).parent
PAGE = "docs/reference/deployment-options.md"
# Written as users write them, with the name that the line has to have.
IN_VAIN: list[tuple[dict[str, Any], str]] = [
    ({"graceful_shutdown_wait_loop_s": 5}, "graceful_shutdown_wait_loop_s"),
    ({"version": "v2"}, "version"),
    ({"runtime_env": {"excludes": ["*.bin"]}}, "runtime_env.excludes"),
    ({"ray_actor_options": {"runtime_env": {"config": {"a": 1}}}}, "runtime_env.config"),
    ({"runtime_env": {"pip": {"packages": [], "pip_check": True}}}, "runtime_env.pip.pip_check"),
    ({"pip": {"packages": [], "pip_version": "==24"}}, "pip.pip_version"),
    (
        {"autoscaling_config": {"max_replicas": 2, "metrics_interval_s": 5}},
        "autoscaling_config.metrics_interval_s",
    ),
    (
        {"request_router_config": {"request_routing_stats_period_s": 1.0}},
        "request_router_config.request_routing_stats_period_s",
    ),
    (
        {"num_replicas": "auto", "autoscaling_config": {"metrics_interval_s": 5}},
        "autoscaling_config.metrics_interval_s",
    ),
]


class Plain:
    """Anything."""


plain = pyserve.deployment(Plain)
app = plain.bind()


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "has no effect" in text]


@pytest.mark.parametrize(("options", "name"), IN_VAIN, ids=[name for _, name in IN_VAIN])
@pytest.mark.parametrize("way", ["decorator", "options", "update"])
def test_an_option_that_changes_nothing_is_told_at_the_deploy(
    options: dict[str, Any], name: str, way: str, caplog: pytest.LogCaptureFixture
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if way == "decorator":
            made = pyserve.deployment(**options)(Plain)
        elif way == "options":
            made = plain.options(**options)
        else:
            made = plain.options(**options).options(max_ongoing_requests=7)
    assert [] == _told(caplog)

    packed = pack(made.bind(), ApplicationName("shop"))

    [line] = _told(caplog)
    assert line.startswith(f"deployment 'Plain' of 'shop': {name} has no effect: ")
    assert line.endswith(f"; see {PAGE}")
    again = DeploymentOptions.from_json(packed.deployments[0].options.to_json())
    assert () == again.unkept, "a replica has nothing to say"


def test_what_acts_is_no_line(caplog: pytest.LogCaptureFixture):
    pack(
        plain.options(
            num_replicas=2,
            resources={"num_cpus": 1},
            max_surge_percent=50,
            request_router_config={"policy": "consistent_hash", "load_bound": 2.0},
        ).bind(),
        ApplicationName("shop"),
    )

    assert [] == caplog.messages


def test_every_option_is_one_that_acts_or_is_told_about():
    """A new option that nothing reads has to be written into one of the two lists."""
    sources = [
        path.read_text()
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "config"
    ]
    told = {name for options, _ in IN_VAIN for name in options} | OF_LAUNCHERS
    idle = {
        field.name
        for field in dataclasses.fields(DeploymentOptions)
        if not any(field.name in source for source in sources)
    }

    assert idle <= told


def test_the_object_of_autoscaling_remembers_what_changes_nothing():
    with pytest.warns(DeprecationWarning, match="metrics_interval_s"):
        scaling = AutoscalingConfig(max_replicas=2, metrics_interval_s=5)

    [line] = lines_on_options(DeploymentOptions(autoscaling_config=scaling))
    assert "metrics_interval_s has no effect" in line
    assert [] == lines_on_options(DeploymentOptions(autoscaling_config=AutoscalingConfig()))


def test_keys_of_a_file_that_change_nothing_are_told(caplog: pytest.LogCaptureFixture):
    text = f"""
applications:
  - import_path: {__name__}:app
    runtime_env: {{excludes: ["*.bin"]}}
    deployments:
      - name: Plain
        graceful_shutdown_wait_loop_s: 5
        version: two
"""

    with pytest.warns(DeprecationWarning, match="version is not needed"):
        load_file(MeshFile("mesh.yaml", text))

    assert [
        "application 'default': runtime_env.excludes has no effect: ",
        "deployment 'Plain' of 'default': graceful_shutdown_wait_loop_s has no effect: ",
        "deployment 'Plain' of 'default': version has no effect: ",
    ] == [line[: line.index("effect: ") + len("effect: ")] for line in _told(caplog)]


def test_local_testing_mode_says_what_only_processes_follow(caplog: pytest.LogCaptureFixture):
    made = plain.options(
        env_vars={"A": "1"},
        working_dir=".",
        ray_actor_options={"label_selector": {"zone": "a"}},
        max_replicas_per_node=1,
    )
    try:
        pyserve.run(made.bind(), local_testing_mode=True)
        pyserve.run(app, name="other", local_testing_mode=True)
    finally:
        pyserve.shutdown()

    assert ["env_vars", "working_dir", "resources", "max_replicas_per_node"] == [
        line.split(": ")[1].split(" ")[0] for line in _told(caplog)
    ]


def test_absolute_links_that_nobody_makes_are_told(caplog: pytest.LogCaptureFixture):
    IngressOptions.of({"root_url": "https://shop.example"}, None, None)
    IngressOptions.of({"root_path": "/shop"}, None, None)

    [line] = _told(caplog)
    assert line.startswith("http_options.root_url has no effect: ")


def test_waiting_cannot_be_left_out(caplog: pytest.LogCaptureFixture):
    pyserve.run_many([], wait_for_applications_running=False)
    pyserve.run_many([])

    [line] = _told(caplog)
    assert line.startswith("run_many: wait_for_... has no effect: ")


@pytest.mark.parametrize(
    "name", ["RUN_ROUTER_IN_SEPARATE_LOOP", "FREEZE_GC_ON_STARTUP", "PROXY_USE_GRPC"]
)
@pytest.mark.parametrize("prefix", ["PYSERVE_", "RAY_SERVE_"])
def test_a_variable_that_changes_nothing_is_told(prefix: str, name: str):
    [line] = older_names({prefix + name: "1"})

    assert line.startswith(f"{prefix}{name} has no effect: ")
    assert [] == unknown_names({prefix + name: "1"})


def test_a_variable_of_ray_serve_that_nobody_knows_is_told():
    [line] = unknown_names({"RAY_SERVE_ENABLE_TASK_EVENTS": "1", "RAY_ADDRESS": "auto"})

    assert line.startswith("RAY_SERVE_ENABLE_TASK_EVENTS is no setting that pyserve knows")


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("pyserve", "get_trace_context", "opentelemetry"),
        ("pyserve", "get_deployment_actor_context", "get_replica_context"),
        ("pyserve", "list_deployments", r"pyserve\.status\(\)"),
        ("pyserve", "build", "pyserve build module:app"),
    ],
)
def test_a_name_of_ray_serve_without_a_counterpart_says_what_to_write(
    module: str, name: str, said: str
):
    found = importlib.import_module(module)
    text = rf"{module} has no {name}: .*{said}.*; see docs/"

    assert not hasattr(found, name)
    with pytest.raises(AttributeError, match=text):
        getattr(found, name)
    with pytest.raises(ImportError, match=text):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", [pyserve, pyserve.config, pyserve.schema])
def test_any_other_name_is_an_attribute_error(module: Any):
    with pytest.raises(AttributeError, match="has no attribute 'deploymnt'"):
        _ = module.deploymnt


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"request_router_class": "p2c"}, "write request_router_config={'request_router_class'"),
        ({"request_router_kwargs": {}}, "write request_router_config={'request_router_class'"),
        ({"route_prefix": "/shop"}, r"write pyserve.run\(app, route_prefix=...\)"),
        ({"route_prefix": None}, r"write pyserve.run\(app, route_prefix=...\)"),
        ({"runtime_env": {"conda": "env"}}, "name the packages by 'pip'"),
    ],
)
def test_an_option_of_ray_serve_that_cannot_act_says_what_to_write(
    options: dict[str, Any], said: str
):
    with pytest.raises(OptionError, match=said):
        pyserve.deployment(**options)(Plain)
