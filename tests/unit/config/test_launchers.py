"""Which launcher is meant, and what it can do with the options of a deployment."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.config import DeploymentOptions, read_settings
from pyserve.config.capabilities import ENVIRONMENTS, OF_LAUNCHERS, Capabilities
from pyserve.config.files import MeshFile
from pyserve.config.launchers import LauncherConfig, read_launcher
from pyserve.errors import OptionError, UsageError

# One value of each option that differs from its default, written as users write it.
WRITTEN: dict[str, dict[str, Any]] = {
    "resources.num_cpus": {"resources": {"num_cpus": 2}},
    "resources.num_gpus": {"ray_actor_options": {"num_gpus": 0.5}},
    "resources.memory": {"resources": {"memory": 1e9}},
    "resources.accelerator_type": {"ray_actor_options": {"accelerator_type": "T4"}},
    "resources.resources": {"resources": {"resources": {"lens": 1}}},
    "resources.label_selector": {"ray_actor_options": {"label_selector": {"zone": "a"}}},
    "resources.fallback_strategy": {"ray_actor_options": {"fallback_strategy": [{}]}},
    "placement_group_bundles": {"placement_group_bundles": [{"CPU": 1}]},
    "placement_group_strategy": {"placement_group_strategy": "SPREAD"},
    "placement_group_bundle_label_selector": {
        "placement_group_bundle_label_selector": [{"zone": "a"}]
    },
    "env_vars": {"env_vars": {"A": "1"}},
    "working_dir": {"runtime_env": {"working_dir": "."}},
    "pip": {"pip": ["lens"]},
    "pod_template": {"pod_template": {"spec": {"nodeSelector": {"disk": "fast"}}}},
    "max_replicas_per_node": {"max_replicas_per_node": 1},
    "gang_scheduling_config": {"num_replicas": 2, "gang_scheduling_config": {"gang_size": 2}},
}


def test_each_option_of_launchers_is_written_in_this_test() -> None:
    assert OF_LAUNCHERS == WRITTEN.keys()


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_an_option_is_carried_out_or_passed_over_or_refused(name: str) -> None:
    options = DeploymentOptions.of(WRITTEN[name])

    refused = Capabilities(acts_on=OF_LAUNCHERS - {name}).refusal(options)

    assert refused.startswith(f"it cannot give {name}; ")
    assert "" == Capabilities(acts_on=frozenset({name})).refusal(options)
    passing = Capabilities(needless={name: "there is one machine"})
    assert "" == passing.refusal(options)
    assert [f"{name} has no effect: there is one machine"] == passing.lines_on(options)
    assert [] == passing.lines_on(DeploymentOptions())


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_an_option_that_has_travelled_is_still_the_same(name: str) -> None:
    """The controller reads what a driver wrote: tuples are lists there."""
    options = DeploymentOptions.from_peer(DeploymentOptions.of(WRITTEN[name]).to_json())

    assert name in Capabilities().refusal(options)
    assert "" == Capabilities().refusal(DeploymentOptions.from_peer("{}"))
    plain = DeploymentOptions.from_peer(DeploymentOptions().to_json())
    assert "" == Capabilities().refusal(plain)


def test_all_that_is_refused_is_named_at_once() -> None:
    options = DeploymentOptions.of({**WRITTEN["pip"], **WRITTEN["max_replicas_per_node"]})

    said = Capabilities().refusal(options)

    assert "max_replicas_per_node and pip" in said


def test_one_that_starts_none_says_so_whatever_is_asked_for() -> None:
    assert "others do" == Capabilities(starts_none="others do").refusal(DeploymentOptions())


def test_a_capability_has_the_name_of_an_option() -> None:
    with pytest.raises(ValueError, match="is called bundles; there are: env_vars"):
        Capabilities(acts_on=ENVIRONMENTS | {"bundles"})


@pytest.mark.parametrize(
    ("written", "name", "options"),
    [
        ("process", "process", {}),
        ({"name": "ray", "address": "auto", "tries": 3}, "ray", {"address": "auto", "tries": 3}),
        ("shop.niced:Niced", "shop.niced:Niced", {}),
    ],
)
def test_a_launcher_travels_by_variables(written: Any, name: str, options: object) -> None:
    found = LauncherConfig.read(written)

    assert (name, options) == (found.name, found.options)
    assert found == read_settings(found.environment()).launcher
    assert found is LauncherConfig.read(found)
    assert LauncherConfig() == read_launcher({})


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "the name of a launcher"),
        ("Process", "module:function"),
        (7, "launcher"),
        ({"address": "auto"}, "launcher has no 'name'"),
        ({"name": 7}, "the name of a launcher"),
        ({"name": "ray", "at": object()}, "what JSON can hold"),
    ],
)
def test_what_can_be_no_launcher_is_refused(written: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        LauncherConfig.read(written)


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_options_in_the_environment_are_an_object(text: str) -> None:
    with pytest.raises(OptionError, match="PYSERVE_LAUNCHER_OPTIONS"):
        read_launcher({"PYSERVE_LAUNCHER_OPTIONS": text})


def test_a_file_names_a_launcher_and_a_mistake_has_its_place() -> None:
    file = MeshFile("mesh.yaml", "applications: []\nlauncher: {name: ray, address: auto}\n")
    assert LauncherConfig(name="ray", options={"address": "auto"}) == file.content.launcher

    with pytest.raises(UsageError, match=r"mesh.yaml:2:\d+: launcher: .*no 'name'"):
        MeshFile("mesh.yaml", "applications: []\nlauncher: {address: auto}\n")
