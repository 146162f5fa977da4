"""Names of applications and deployments: what they may have, and how long they may be."""

from __future__ import annotations

import pytest

from pyserve.config import DeploymentOptions
from pyserve.config.options import check_name, check_target
from pyserve.errors import OptionError

LONGEST = "a" * 63


@pytest.mark.parametrize("name", ["a" * 64, "a" * 300, "_" + "b.-" * 21, "é", "1a", ""])
def test_a_name_is_one_of_63_characters_at_most(name: str) -> None:
    for check in (
        lambda: DeploymentOptions(name=name),
        lambda: check_name("application", name),
        lambda: check_target("target", f"shop/{name}"),
    ):
        with pytest.raises(OptionError, match=r"name|application|target"):
            check()


def test_the_longest_one_is_taken() -> None:
    assert LONGEST == check_name("application", LONGEST)
    assert LONGEST == DeploymentOptions(name=LONGEST).name
    assert f"shop/{LONGEST}" == check_target("target", f"shop/{LONGEST}")


def test_a_longer_name_that_a_release_before_took_is_no_end_of_the_mesh() -> None:
    text = DeploymentOptions(name="a", num_replicas=3).to_json().replace('"a"', f'"{"a" * 100}"')
    assert "a" * 100 in text
    assert 3 == DeploymentOptions.from_peer(text).num_replicas
