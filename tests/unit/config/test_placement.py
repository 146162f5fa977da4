"""What is written of placement groups has to fit together; what has travelled is taken as it is."""

import json
from typing import Any

import pytest

import pyserve
from pyserve.api.graph import pack
from pyserve.config import DeploymentOptions
from pyserve.errors import OptionError
from pyserve.schema import DeploymentSchema
from pyserve.types import ApplicationName

_TWO = [{"CPU": 1}, {"GPU": 1}]


class Plain:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"placement_group_bundles": [{"CPU": 1}]},
        {"placement_group_bundles": _TWO, "placement_group_strategy": "SPREAD"},
        {"placement_group_bundles": _TWO, "placement_group_bundle_label_selector": [{"zone": "a"}]},
        {
            "placement_group_bundles": _TWO,
            "placement_group_bundle_label_selector": [{"zone": "a"}, {"zone": "b"}],
        },
        {
            "placement_group_bundles": [{"CPU": 2, "lens": 1}],
            "ray_actor_options": {"num_cpus": 2, "resources": {"lens": 0.5}},
        },
        {"placement_group_bundles": None, "placement_group_strategy": None},
    ],
)
def test_what_fits_together_is_taken(options: dict[str, Any]) -> None:
    pyserve.deployment(**options)(Plain)


_WRONG = [
    ({"placement_group_bundles": []}, "at least one mapping"),
    ({"placement_group_bundles": [{}]}, "an amount above 0"),
    ({"placement_group_bundles": [{"CPU": 1}, {"GPU": 0}]}, "an amount above 0"),
    ({"placement_group_strategy": "STRICT_SPREAD"}, "beside placement_group_bundles"),
    ({"placement_group_bundle_label_selector": [{"zone": "a"}]}, "none without placement_group"),
    (
        {
            "placement_group_bundles": [*_TWO, {"CPU": 3}],
            "placement_group_bundle_label_selector": [{"zone": "a"}, {"zone": "b"}],
        },
        r"one for each \(3\)",
    ),
    (
        {"placement_group_bundles": [{"GPU": 1}], "ray_actor_options": {"num_cpus": 1}},
        "a first bundle with at least CPU=1",
    ),
    (
        {"placement_group_bundles": _TWO, "ray_actor_options": {"resources": {"lens": 2}}},
        "a first bundle with at least lens=2",
    ),
    (
        {"placement_group_bundles": _TWO, "ray_actor_options": {"memory": 1e6}},
        "a first bundle with at least memory=1e",
    ),
]


@pytest.mark.parametrize(("options", "said"), _WRONG)
def test_what_does_not_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        pyserve.deployment(**options)(Plain)
    with pytest.raises(OptionError, match=said):
        pyserve.deployment(Plain).options(**options)


def test_a_file_may_say_what_the_code_leaves_out() -> None:
    """Each of its options is checked for itself, and then what both say together."""
    DeploymentSchema(name="Plain", placement_group_strategy="SPREAD")
    application = pyserve.deployment(placement_group_bundles=_TWO)(Plain).bind()

    packed = pack(
        application,
        ApplicationName("shop"),
        adjust=lambda _, options: options.updated({"placement_group_strategy": "SPREAD"}),
    )
    assert "SPREAD" == packed.deployments[0].options.placement_group_strategy

    with pytest.raises(OptionError, match="beside placement_group_bundles"):
        pack(
            application,
            ApplicationName("shop"),
            adjust=lambda _, options: options.updated(
                {"placement_group_bundles": None, "placement_group_strategy": "SPREAD"}
            ),
        )


@pytest.mark.parametrize("options", [each for each, _ in _WRONG])
def test_what_another_release_has_deployed_is_read(options: dict[str, Any]) -> None:
    written = json.loads(DeploymentOptions().to_json())
    resources = {**written["resources"], **options.get("ray_actor_options", {})}
    rest = {name: value for name, value in options.items() if name != "ray_actor_options"}

    DeploymentOptions.from_peer(json.dumps({**written, **rest, "resources": resources}))
