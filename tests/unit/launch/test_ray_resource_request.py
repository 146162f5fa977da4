"""The resources that a replica requests from a Ray cluster, and the error when no node has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyserve.launch import Gang
from pyserve.launch.on_ray.resource_request import Node, ResourceRequest, requested_of
from tests.unit.launch.orders import order

pytestmark = pytest.mark.parity("G-11")
SMALL = Node("a", "10.0.0.1", {"CPU": 2.0, "memory": 4e9})
LENS = Node("b", "10.0.0.2", {"CPU": 4.0, "lens": 1.0, "accelerator_type:T4": 1.0, "GPU": 1.0})


def requested(gang: Gang | None = None, **options: Any) -> ResourceRequest:
    return requested_of(order(gang=gang, version="v1", **options))


@pytest.mark.parametrize(
    ("options", "actor"),
    [
        ({}, {"num_cpus": 1.0, "num_gpus": 0.0}),
        ({"resources": {"num_cpus": 0}}, {"num_cpus": 0, "num_gpus": 0.0}),
        ({"ray_actor_options": {"num_gpus": 0.5}}, {"num_cpus": 1.0, "num_gpus": 0.5}),
        (
            {
                "ray_actor_options": {
                    "memory": 1e9,
                    "accelerator_type": "T4",
                    "resources": {"lens": 1},
                    "label_selector": {"zone": "a"},
                    "fallback_strategy": [{"label_selector": {"zone": "b"}}],
                }
            },
            {
                "num_cpus": 1.0,
                "num_gpus": 0.0,
                "memory": 1e9,
                "accelerator_type": "T4",
                "resources": {"lens": 1},
                "label_selector": {"zone": "a"},
                "fallback_strategy": [{"label_selector": {"zone": "b"}}],
            },
        ),
        ({"placement_group_bundles": [{"GPU": 1}]}, {"num_cpus": 0.0, "num_gpus": 0.0}),
        ({"placement_group_bundles": [{"CPU": 4}]}, {"num_cpus": 1.0, "num_gpus": 0.0}),
    ],
)
def test_options_are_rays_own(options: dict[str, Any], actor: dict[str, Any]) -> None:
    assert actor == requested(**options).actor


@pytest.mark.parity("G-68")
def test_the_environment_has_the_names_that_ray_gives_it(tmp_path: Path) -> None:
    asked = requested(env_vars={"A": "1"}, working_dir=str(tmp_path), pip=["lens"])

    assert {"env_vars": {"A": "1"}, "pip": ["lens"]} == asked.actor["runtime_env"]
    assert str(tmp_path) == asked.working_dir


@pytest.mark.parity("G-13")
def test_a_limit_for_each_node_is_a_share_of_what_each_node_has_one_of() -> None:
    asked = requested(max_replicas_per_node=4, resources={"resources": {"lens": 1}})

    resources = asked.actor["resources"]
    assert isinstance(resources, dict)
    name = "node:__internal_implicit_resource_shop:Echo:v1"
    assert {"lens": 1, name: 0.25} == resources
    assert "" == asked.shortage([LENS])
    assert "a node with CPU 1 and lens 1 left and fewer than 4 of its deployment" == asked.told()


def gang(rank: int, strategy: str = "PACK") -> Gang:
    return Gang(id="Echo#first", rank=rank, size=2, strategy=strategy)


@pytest.mark.parity("G-14")
def test_a_gang_is_one_group_in_which_each_member_has_its_bundle() -> None:
    asked = requested(
        gang(1, "SPREAD"),
        num_replicas=2,
        gang_scheduling_config={"gang_size": 2},
        ray_actor_options={"num_cpus": 2, "label_selector": {"zone": "a"}},
    )

    assert [{"CPU": 2}, {"CPU": 2}] == asked.bundles
    assert ("SPREAD", 1, "Echo#first") == (asked.strategy, asked.bundle, asked.gang)
    assert [{"zone": "a"}, {"zone": "a"}] == asked.bundle_labels
    assert {"num_cpus": 2, "num_gpus": 0.0} == asked.actor
    assert "room for the bundles of its gang, CPU 2, CPU 2" == asked.told()
    assert "" == asked.shortage([SMALL])


@pytest.mark.parity("G-14")
def test_members_with_bundles_have_them_one_behind_the_other() -> None:
    asked = requested(
        gang(1),
        num_replicas=2,
        gang_scheduling_config={"gang_size": 2},
        placement_group_bundles=[{"CPU": 1}, {"GPU": 1}],
        placement_group_bundle_label_selector=[{"zone": "a"}, {"zone": "b"}],
    )

    assert [{"CPU": 1}, {"GPU": 1}] * 2 == asked.bundles
    assert ([{"zone": "a"}, {"zone": "b"}] * 2, 2) == (asked.bundle_labels, asked.bundle)


@pytest.mark.parity("G-12")
def test_bundles_are_a_group(tmp_path: Path) -> None:
    asked = requested(
        placement_group_bundles=[{"CPU": 1}, {"GPU": 1}],
        placement_group_strategy="SPREAD",
        placement_group_bundle_label_selector=[{"zone": "a"}, {"zone": "b"}],
    )

    assert [{"CPU": 1}, {"GPU": 1}] == asked.bundles
    assert ("SPREAD", [{"zone": "a"}, {"zone": "b"}]) == (asked.strategy, asked.bundle_labels)
    assert "room for the bundles CPU 1, GPU 1" == asked.told()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ""),
        ({"resources": {"num_cpus": 4}}, ""),
        ({"resources": {"num_cpus": 4, "resources": {"lens": 1}}}, ""),
        ({"resources": {"accelerator_type": "T4"}}, ""),
        ({"placement_group_bundles": [{"CPU": 2}, {"lens": 1}]}, ""),
        (
            {"resources": {"num_cpus": 8}},
            "no node of the Ray cluster has CPU 8; the most that one has: CPU 4",
        ),
        (
            {"resources": {"num_cpus": 4, "memory": 1e9}},
            "no node of the Ray cluster has CPU 4 and memory 1e+09; the most that one has: CPU 4 "
            "and memory 4e+09",
        ),
        (
            {"placement_group_bundles": [{"CPU": 1}, {"lens": 2}]},
            "no node of the Ray cluster has lens 2; the most that one has: lens 1",
        ),
    ],
)
def test_what_no_node_has_is_known_before_anything_is_asked(
    options: dict[str, Any], said: str
) -> None:
    assert said == requested(**options).shortage([SMALL, LENS])


def test_a_cluster_without_nodes_has_room_for_nothing() -> None:
    assert requested().shortage([]).endswith("; it has no node that lives")


def test_what_is_waited_for_is_told_in_words() -> None:
    assert (
        "a node with CPU 1 and lens 2 left"
        == requested(ray_actor_options={"resources": {"lens": 2}}).told()
    )
    assert "a node with room left" == requested(resources={"num_cpus": 0}).told()
