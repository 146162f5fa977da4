"""Which node of a Ray cluster a replica is put on, so that few are used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.launch.on_ray.resource_request import Node, Packing, ResourceRequest, requested_of
from tests.unit.launch.orders import order

pytestmark = pytest.mark.parity("G-32")
NODES = [Node(name, f"10.0.0.{name}", {"CPU": 4.0, "memory": 8e9}) for name in "123"]
FREE = {node.id: dict(node.resources) for node in NODES}


def requested(cpus: float = 1.0, **options: Any) -> ResourceRequest:
    return requested_of(order(version="v1", resources={"num_cpus": cpus}, **options))


def test_nodes_fill_up_one_after_the_other() -> None:
    packing = Packing()
    found = [packing.place(f"Echo#{number}", requested(), NODES, FREE) for number in range(12)]

    assert ["1"] * 4 + ["2"] * 4 + ["3"] * 4 == found
    assert "" == packing.place("Echo#12", requested(), NODES, FREE)


def test_a_node_that_others_use_comes_before_an_idle_one() -> None:
    free = {**FREE, "3": {"CPU": 2.0, "memory": 8e9}}

    assert "3" == Packing().place("Echo#1", requested(), NODES, free)


def test_of_those_in_use_the_one_with_least_left_comes_first() -> None:
    free = {**FREE, "1": {"CPU": 3.0, "memory": 8e9}, "2": {"CPU": 2.0, "memory": 8e9}}

    assert "2" == Packing().place("Echo#1", requested(2), NODES, free)
    assert "1" == Packing().place("Echo#1", requested(3), NODES, free)


def test_what_is_taken_whole_is_not_told_by_the_cluster() -> None:
    assert "2" == Packing().place("Echo#1", requested(), NODES, {**FREE, "1": {"memory": 8e9}})


def test_one_that_has_left_makes_room() -> None:
    packing = Packing()
    for number in range(4):
        packing.place(f"Echo#{number}", requested(), NODES, FREE)
    packing.leave("Echo#2")

    assert "1" == packing.place("Echo#4", requested(), NODES, FREE)


def test_a_bound_for_each_node_is_kept() -> None:
    packing = Packing()
    found = [
        packing.place(f"Echo#{number}", requested(max_replicas_per_node=2), NODES, FREE)
        for number in range(4)
    ]

    assert ["1", "1", "2", "2"] == found


@pytest.mark.parametrize(
    "options",
    [
        {"ray_actor_options": {"label_selector": {"zone": "b"}, "num_cpus": 1}},
        {"placement_group_bundles": [{"CPU": 1}]},
    ],
)
def test_labels_and_bundles_have_the_last_word(options: dict[str, Any]) -> None:
    wanted = requested_of(order(version="v1", **options))

    assert "" == Packing().place("Echo#1", wanted, NODES, FREE)


@given(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]), max_size=30))
def test_no_node_gets_more_than_it_has_and_none_is_begun_while_another_has_room(
    sizes: list[float],
) -> None:
    packing, used = Packing(), dict.fromkeys("123", 0.0)
    for number, cpus in enumerate(sizes):
        place = packing.place(f"Echo#{number}", requested(cpus), NODES, FREE)
        roomy = {name for name, taken in used.items() if taken + cpus <= 4.0}
        assert (place in roomy) if roomy else (place == "")
        if place and used[place] == 0.0:
            assert not any(used[name] for name in roomy)
        if place:
            used[place] += cpus


@pytest.mark.parametrize(("cpus", "count"), [(0.2, 20), (0.1, 40), (0.8, 5)])
def test_shares_fill_a_node_to_the_last_one(cpus: float, count: int) -> None:
    packing = Packing()
    found = [packing.place(f"Echo#{n}", requested(cpus), NODES, FREE) for n in range(count)]

    assert ["1"] * count == found
