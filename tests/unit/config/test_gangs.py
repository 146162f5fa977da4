"""Groups of replicas: what may be written, and which numbers make whole ones."""

from __future__ import annotations

from typing import Any

import pytest

from pyserve.config import (
    DeploymentOptions,
    GangPlacementStrategy,
    GangRuntimeFailurePolicy,
    GangSchedulingConfig,
)
from pyserve.control.state.applications import Capacity
from pyserve.control.state.mesh import Version
from pyserve.errors import OptionError
from pyserve.wire.v1 import mesh_pb2

pytestmark = pytest.mark.parity("G-14")


def options(**values: Any) -> DeploymentOptions:
    return DeploymentOptions.of({"gang_scheduling_config": {"gang_size": 2}, **values})


def test_it_is_written_as_in_ray_serve() -> None:
    written = GangSchedulingConfig(
        gang_size=2,
        gang_placement_strategy=GangPlacementStrategy.SPREAD,
        runtime_failure_policy=GangRuntimeFailurePolicy.RESTART_GANG,
    )

    found = DeploymentOptions.of({"num_replicas": 4, "gang_scheduling_config": written})

    assert found == DeploymentOptions.from_json(found.to_json())
    assert found.gang_scheduling_config is not None
    assert "SPREAD" == found.gang_scheduling_config.gang_placement_strategy
    assert 2 == found.gang_size


def test_an_older_controller_is_not_told_of_what_nobody_asked_for() -> None:
    assert "gang" not in DeploymentOptions().to_json()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_replicas": 3}, "num_replicas=3 is not allowed; allowed: a multiple of gang_size=2"),
        (
            {"autoscaling_config": {"min_replicas": 2, "max_replicas": 5}},
            "autoscaling_config.max_replicas=5 is not allowed; allowed: a multiple of gang_size=2",
        ),
        ({"num_replicas": 2, "max_replicas_per_node": 1}, "max_replicas_per_node=1"),
        ({"num_replicas": 2, "placement_group_strategy": "SPREAD"}, "gang_placement_strategy"),
        ({"gang_scheduling_config": {}}, "gang_size=0"),
        ({"gang_scheduling_config": {"gang_size": 1, "size": 1}}, "has no option 'size'"),
        (
            {"gang_scheduling_config": {"gang_size": 1, "gang_placement_strategy": "STRICT_PACK"}},
            "gang_placement_strategy='STRICT_PACK'",
        ),
        (
            {
                "gang_scheduling_config": {
                    "gang_size": 1,
                    "runtime_failure_policy": GangRuntimeFailurePolicy.RESTART_REPLICA,
                }
            },
            "runtime_failure_policy='RESTART_REPLICA'",
        ),
    ],
)
def test_what_makes_no_whole_gangs_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        options(**values)

    assert said in str(refusal.value)


def test_a_number_that_the_load_wants_becomes_whole_gangs() -> None:
    version = Version("v1", options(autoscaling_config={"min_replicas": 2, "max_replicas": 6}))

    counts = []
    for target in (None, 3, 4, 6):
        version.scaling.target = target
        counts.append(version.num_replicas)

    assert [2, 4, 4, 6] == counts


def test_a_share_of_the_replicas_is_whole_gangs() -> None:
    spec = mesh_pb2.DeploymentSpec(options_json=options(num_replicas=6).to_json())
    scaled = mesh_pb2.DeploymentSpec(
        options_json=options(autoscaling_config={"min_replicas": 2, "max_replicas": 6}).to_json()
    )

    found = [
        DeploymentOptions.from_json(each.options_json)
        for each in Capacity().moved_to(50.0, is_same=True).applied([spec, scaled])
    ]

    assert 4 == found[0].num_replicas
    assert found[1].scaling is not None
    assert (2, 4) == (found[1].scaling.min_replicas, found[1].scaling.max_replicas)
