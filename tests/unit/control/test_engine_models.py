"""The models of engines for language models: what is kept of them, and what routers hear."""

from __future__ import annotations

import pytest

from pyserve.config import DeploymentOptions
from pyserve.control.replicas.identity import learn_services
from pyserve.control.state.applications import HttpRoutes
from pyserve.control.state.engines import engine_models, shared_names
from pyserve.control.state.mesh import Desired, Version
from pyserve.control.store.records import DeploymentRecord, Table, decode, encode
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName
from pyserve.wire.v1 import mesh_pb2
from tests.unit.control.test_applications import World
from tests.unit.control.world import views_of

SERVICE = "pyserve.llm.v1.Engine"


def ready(*names: str, created: int = 0) -> mesh_pb2.Ready:
    models = [mesh_pb2.EngineModel(id=name, created=created) for name in names]
    return mesh_pb2.Ready(services=[SERVICE], engine_models=models)


def engine(name: str, *models: str, **options: object) -> Desired:
    key = DeploymentKey(ApplicationName("chat"), DeploymentName(name))
    desired = Desired(key, Version(name, DeploymentOptions.of(options)))
    learn_services(desired, ready(*models), unix_now=7.0)
    return desired


def come_up(world: World, name: str, prefix: str, *, default: bool = False) -> Desired:
    """Deploy an engine that takes no plain HTTP itself."""
    desired = world.ready(name, prefix, default=default, http=False)
    learn_services(desired, ready("a"), unix_now=7.0)
    return desired


def llm_prefixes(world: World) -> dict[str, str]:
    routes = world.applications.routes(world.state)
    views = views_of(world.state, routes, world.applications.infos)
    return {key.application: view.llm_prefix for key, view in views.items()}


def test_a_model_is_as_old_as_the_first_news_of_it() -> None:
    desired = engine("Engine", "a")
    learn_services(desired, ready("a", "b"), unix_now=9.5)
    assert [("a", 7), ("b", 9)] == [(each.id, each.created) for each in engine_models(desired)]
    learn_services(desired, ready("a", created=3), unix_now=11.0)
    assert [("a", 3)] == [(each.id, each.created) for each in engine_models(desired)]


def test_models_outlive_a_controller() -> None:
    desired = engine("Engine", "a")
    record = DeploymentRecord(
        application=desired.key.application,
        name=desired.key.deployment,
        position=0,
        target=None,
        fallback=None,
        engine_models=desired.engine_models,
    )
    found = decode(Table.DEPLOYMENTS, encode(record))
    assert isinstance(found, DeploymentRecord)
    assert found.engine_models == desired.engine_models


def test_routers_hear_of_models_while_no_replica_is_there() -> None:
    world = World()
    come_up(world, "chat", "/chat")
    routes = world.applications.routes(world.state)
    (view,) = views_of(world.state, routes, world.applications.infos).values()
    assert (["a"], "/chat") == ([each.id for each in view.engine_models], view.llm_prefix)
    assert [] == list(view.http_prefixes), "the ingress answers below it, not the engine"


def test_an_engine_holds_the_prefix_of_its_application() -> None:
    world = World()
    come_up(world, "chat", "/chat")
    come_up(world, "first", "/", default=True)
    world.ready("web", "/", default=True)
    come_up(world, "later", "/", default=True)
    assert {"chat": "/chat", "first": "/", "web": "", "later": ""} == llm_prefixes(world)
    assert () == world.prefixes()["web"]
    with pytest.raises(Exception, match=r"'/chat' of application 'other' belongs to .* 'chat'"):
        world.deploy("other", "/chat")


def test_an_application_with_a_web_server_has_both() -> None:
    world = World()
    desired = world.ready("web", "/")
    learn_services(desired, mesh_pb2.Ready(services=["s"], http=True), unix_now=1.0)
    assert {"web": ""} == llm_prefixes(world)
    both = ready("a")
    both.http = True
    learn_services(desired, both, unix_now=1.0)
    assert {"web": "/"} == llm_prefixes(world)
    assert ("/",) == world.prefixes()["web"]


def test_without_a_prefix_there_are_no_doors() -> None:
    world = World()
    come_up(world, "hidden", "")
    assert {"hidden": ""} == llm_prefixes(world)
    assert {} == HttpRoutes({}, {}, ()).of_engines


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a"]),
        ({"traffic": {"chat/Second": 0.1}}, []),
        ({"mirror": {"chat/Second": 0.1}}, []),
        ({"traffic": {"chat/Third": 0.1}}, ["a"]),
    ],
)
def test_names_that_two_engines_have_are_known_unless_they_share_calls(
    options: dict[str, object], expected: list[str]
) -> None:
    first, second = engine("First", "a", "b", **options), engine("Second", "c", "a")
    assert expected == shared_names(first, second) == shared_names(second, first)
    assert [] == shared_names(first, first)
