"""``deployment_actors``: what makes a deployment of a helper, and what is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import pyserve
from pyserve.api.graph import application_of, pack
from pyserve.config import DeploymentActorConfig, DeploymentOptions
from pyserve.errors import NotInReplica, OptionError, UsageError
from pyserve.types import ApplicationName


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, number: int) -> int:
        self.value += number
        return self.value


class Limit:
    async def take(self) -> None:
        await asyncio.sleep(0)


class ShopCode:
    async def __call__(self) -> None: ...


def shop(*configs: DeploymentActorConfig) -> Any:
    return pyserve.deployment(name="Shop", deployment_actors=list(configs))(ShopCode)


def config(**values: Any) -> DeploymentActorConfig:
    return DeploymentActorConfig(**{"name": "counter", "actor_class": Counter, **values})


def helper(options: DeploymentOptions | None = None, **values: Any) -> DeploymentOptions:
    return application_of(
        "Shop", options or DeploymentOptions(), config(**values)
    ).deployment.settings


def test_a_helper_is_a_deployment_that_comes_first():
    packed = pack(shop(config()).bind(), ApplicationName("a"))
    helper, owner = packed.deployments
    assert ("Shop.counter", "Shop") == (helper.name, owner.name)
    assert [helper.name] == [key.deployment for key in owner.calls]
    assert owner.name == packed.ingress


def test_only_names_travel_to_replicas():
    packed = pack(shop(config(init_kwargs={"start": 3})).bind(), ApplicationName("a"))
    text = packed.deployments[1].options.to_json()
    assert [{"name": "counter"}] == json.loads(text)["deployment_actors"]
    found = DeploymentOptions.from_peer(text).deployment_actors
    assert ["counter"] == [each.name for each in found]
    # A controller of the release before would refuse what it does not know.
    assert "deployment_actors" not in json.loads(packed.deployments[0].options.to_json())


def test_options_of_a_file_leave_what_a_deployment_calls():
    """Children start before their parents, also where a file changes the parents' options."""
    packed = pack(
        shop(config()).bind(),
        ApplicationName("a"),
        adjust=lambda name, options: options.updated({"num_replicas": 3} if name == "Shop" else {}),
    )
    owner = packed.deployments[1]
    assert (3, ["Shop.counter"]) == (
        owner.options.num_replicas,
        [key.deployment for key in owner.calls],
    )


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ({}, 1),
        ({"actor_class": Limit}, 1000),
        ({"actor_options": {"max_concurrency": 7}}, 7),
    ],
)
def test_how_many_calls_it_takes_at_once_is_as_in_ray(values: dict[str, Any], most: int):
    assert most == helper(**values).max_ongoing_requests


def test_it_has_the_environment_of_its_deployment_and_what_it_says_itself():
    owner = DeploymentOptions(env_vars={"A": "1"}, startup_timeout_s=7.0)
    assert {"A": "1"} == helper(owner).env_vars
    assert 7.0 == helper(owner).startup_timeout_s
    own = {"num_cpus": 0.5, "runtime_env": {"env_vars": {"B": "2"}}}
    assert {"B": "2"} == helper(owner, actor_options=own).env_vars
    assert 0.5 == helper(owner, actor_options=own).resources.num_cpus


def test_a_class_may_be_named_or_be_one_of_rays():
    class OfRay:
        class __ray_metadata__:  # noqa: N801  # As Ray has it.
            modified_class = Counter

    for each in (f"{__name__}:Counter", f"{__name__}.Counter", OfRay()):
        found = application_of("Shop", DeploymentOptions(), config(actor_class=each))
        assert found.deployment.target.__name__ == "Counter"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("counter", "a list of DeploymentActorConfig"),
        ([{"name": "a", "classes": 1}], "known: actor_class"),
        ([{"name": "a"}, {"name": "a"}], "a name of its own for each"),
        ([{"name": ""}], "deployment_actors.name"),
        ([{"name": "a", "init_args": "ab"}], "a list of arguments"),
    ],
)
def test_what_is_no_helper_is_refused_where_it_is_written(given: object, says: str):
    with pytest.raises(OptionError, match=says):
        DeploymentOptions.of({"deployment_actors": given})


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"actor_class": None}, OptionError, "allowed: a class, or an import path"),
        ({"actor_class": "no_such_module:C"}, OptionError, "'no_such_module:C'.* cannot be found"),
        ({"init_kwargs": {"stop": 1}}, TypeError, "Counter.bind: .*'stop'"),
        ({"actor_options": {"lifetime": "detached"}}, OptionError, "no option 'lifetime'"),
    ],
)
def test_a_helper_that_cannot_be_made_is_refused_before_anything_starts(
    values: dict[str, Any], error: type[Exception], says: str
):
    with pytest.raises(error, match=says):
        pack(shop(config(**values)).bind(), ApplicationName("a"))


def test_its_name_may_be_taken():
    @pyserve.deployment(name="Shop.counter")
    class Other:
        async def __call__(self) -> None: ...

    class Asks:
        def __init__(self, other: object) -> None: ...

    asks = pyserve.deployment(name="Shop", deployment_actors=[config()])(Asks)
    with pytest.raises(UsageError, match="needs that name"):
        pack(asks.bind(Other.bind()), ApplicationName("a"))


def test_only_replicas_have_helpers():
    with pytest.raises(NotInReplica):
        pyserve.get_deployment_actor("counter")
