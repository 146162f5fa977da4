"""Shares of calls between deployments: names are looked up at the deploy and in each view."""

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.state.applications import ApplicationInfo
from pyserve.control.state.mesh import Desired, MeshState, Version
from pyserve.control.state.traffic import check_traffic, shares_of
from pyserve.errors import OptionError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2


def key(application: str, deployment: str) -> DeploymentKey:
    return DeploymentKey(ApplicationName(application), DeploymentName(deployment))


MODEL = key("v1", "Model")
KNOWN = frozenset({MODEL, key("v2", "Model"), key("v2", "Front"), key("v3", "Other")})
INFOS = {
    ApplicationName("v1"): ApplicationInfo("/", "Model"),
    ApplicationName("v2"): ApplicationInfo("", "Front"),
    ApplicationName("v3"): ApplicationInfo("", "Other"),
}


def check(options: DeploymentOptions, *, alone: bool = False) -> None:
    state = MeshState()
    if not alone:
        others = {key: Version("v", DeploymentOptions()) for key in KNOWN - {MODEL}}
        for other, version in others.items():
            state.deployments[other] = Desired(other, version)
    check_traffic({MODEL: (Version("v", options), mesh_pb2.DeploymentSpec())}, INFOS, state)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("v2", key("v2", "Model")),  # of the same name
        ("v3", key("v3", "Other")),  # that it exposes
        ("v2/Front", key("v2", "Front")),
        ("v1/Model", None),
        ("v1", None),
        ("v2/None", None),
        ("v4", None),
    ],
)
def test_a_name_means_one_deployment(name: str, target: DeploymentKey | None):
    options = DeploymentOptions.of({"traffic": {name: 0.25}})
    shares = [
        (each.key.application, each.key.name, each.weight)
        for each in shares_of(MODEL, options.traffic, INFOS, KNOWN)
    ]

    if target is None:
        assert [] == shares
        with pytest.raises(OptionError, match=f"traffic of v1/Model='{name}' is not allowed"):
            check(options)
    else:
        assert [(target.application, target.deployment, 0.25)] == shares
        check(options)


def test_a_refusal_says_what_is_there():
    options = DeploymentOptions.of({"mirror": {"shadow": 1}})

    with pytest.raises(OptionError, match=r"mirror of v1/Model='shadow'.*v2/Front, v2/Model"):
        check(options)
    with pytest.raises(OptionError, match="there is no other deployment"):
        check(options, alone=True)


def test_a_share_of_nothing_goes_nowhere():
    assert [] == list(shares_of(MODEL, {"v2": 0.0}, INFOS, KNOWN))
