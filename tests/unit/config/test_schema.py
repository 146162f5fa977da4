"""The YAML as models: what fits is read, what does not is refused with the options' words."""

import dataclasses
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pyserve.config import DeploymentOptions, LoggingConfig, ProxyLocation
from pyserve.schema import DeploymentSchema, ServeApplicationSchema, ServeDeploySchema

_FILE = """
proxy_location: HeadOnly
http_options:
  host: 0.0.0.0
  port: 8001
grpc_options:
  port: 9001
  grpc_servicer_functions: [shop_pb2_grpc.add_ShopServicer_to_server]
logging_config:
  log_level: debug
  encoding: JSON
applications:
  - name: shop
    route_prefix: /shop
    import_path: shop.app:app
    args: {size: 3}
    deployments:
      - name: Cart
        num_replicas: 2
        max_ongoing_requests: 7
        ray_actor_options: {num_cpus: 1, runtime_env: {}}
        user_config: {threshold: 0.5}
        request_router_config:
          request_router_class: ray.serve.request_router.RoundRobinRouter
      - name: Search
        autoscaling_config: {min_replicas: 1, max_replicas: 5}
        serializer: msgpack
"""


def _file(**changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load(_FILE), **changes}


def test_a_file_of_ray_serve_is_read():
    found = ServeDeploySchema.model_validate(_file())
    shop = found.applications[0]

    assert ProxyLocation.HeadOnly == found.proxy_location
    assert ("0.0.0.0", 8001, 9001) == (
        found.http_options.host,
        found.http_options.port,
        found.grpc_options.port,
    )
    assert LoggingConfig(log_level="DEBUG", encoding="JSON") == found.logging_config
    assert ["Cart", "Search"] == shop.deployment_names
    assert {"size": 3} == shop.args


def test_what_was_written_comes_out_again():
    written = ServeDeploySchema.model_validate(_file()).model_dump(exclude_unset=True)

    assert _file()["applications"] == written["applications"]


def test_the_options_of_a_deployment_are_those_of_the_code():
    cart = ServeDeploySchema.model_validate(_file()).applications[0].deployments[0]
    options = DeploymentOptions.of(cart.options())

    assert (2, 7, 1.0) == (
        options.num_replicas,
        options.max_ongoing_requests,
        options.resources.num_cpus,
    )
    assert "round_robin" == options.request_router_config.policy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"applications": [{"import_path": "shop"}]}, "'module:attribute'"),
        ({"applications": [{"import_path": "a:b:c"}]}, "'module:attribute'"),
        ({"applications": [{"import_path": "a:"}]}, "'module:attribute'"),
        ({"applications": [{"import_path": "a:b", "route_prefix": "shop"}]}, "begins with a slash"),
        ({"applications": [{"import_path": "a:b"}, {"import_path": "a:c"}]}, "each name once"),
        ({"applications": [{"import_path": "a:b", "name": "1"}]}, "name='1' is not allowed"),
        ({"application": []}, "there is no 'application'; did you mean 'applications'?"),
        ({"http_options": {"port": 70_000}}, "http_options.port=70000"),
        ({"grpc_options": {"enable_reflection": False}}, "grpc_options.enable_reflection"),
        ({"proxy_location": "Everywhere"}, "proxy_location='Everywhere'"),
        ({"target_capacity": 101}, "less than or equal to 100"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(changes: dict[str, Any], said: str):
    with pytest.raises(ValidationError) as refusal:
        ServeDeploySchema.model_validate(_file(**changes))

    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_replica": 2}, "did you mean 'num_replicas'?"),
        ({"num_replicas": -1}, "num_replicas=-1"),
        ({"num_replicas": 0}, "num_replicas=0 is not allowed"),
        ({"ray_actor_options": {"num_cpus": -1}}, "num_cpus=-1"),
        ({"logging_config": "LOUD"}, "logging_config.log_level='LOUD'"),
        ({"gang_scheduling_config": {"gang_size": 2}}, "num_replicas=1 is not allowed"),
    ],
)
def test_an_option_is_refused_as_in_code(options: dict[str, Any], said: str):
    with pytest.raises(ValidationError) as refusal:
        DeploymentSchema.model_validate({"name": "Cart", **options})

    assert said in str(refusal.value)


def test_two_deployments_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="each name once"):
        ServeApplicationSchema(import_path="a.b", deployments=[DeploymentSchema(name="A")] * 2)


def test_a_file_says_what_is_traced():
    written = {"enabled": True, "exporter_import_path": "shop.spans:export", "sampling_ratio": 0.5}
    found = ServeDeploySchema.model_validate(_file(tracing_config=written)).tracing_config

    assert found is not None
    assert written == dataclasses.asdict(found)


def test_a_wrong_exporter_is_refused_where_it_stands():
    with pytest.raises(ValidationError, match="module:function"):
        ServeDeploySchema.model_validate(_file(tracing_config={"exporter_import_path": "7 ways"}))


def test_the_empty_file_runs_nothing():
    found = ServeDeploySchema.model_validate(ServeDeploySchema.get_empty_schema_dict())

    assert [] == found.applications


def _older(*prefixes: str | None, **application: Any) -> ServeApplicationSchema:
    """Return an application of a file from when deployments had prefixes."""
    deployments = [
        {"name": f"D{number}", "route_prefix": prefix, "num_replicas": 2}
        for number, prefix in enumerate(prefixes)
    ]
    written = {"import_path": "a:b", "deployments": deployments, **application}
    return ServeDeploySchema.model_validate({"applications": [written]}).applications[0]


@pytest.mark.parametrize(
    ("prefixes", "application", "expected"),
    [
        (("/shop",), {}, "/shop"),
        ((None, "/shop", None), {}, "/shop"),
        (("/shop", "/shop"), {}, "/shop"),
        (("/old",), {"route_prefix": "/new"}, "/new"),
        (("/old", "/other"), {"route_prefix": None}, None),
        ((None, None), {}, "/"),
    ],
)
def test_the_prefix_of_a_deployment_is_the_applications(
    prefixes: tuple[str | None, ...], application: dict[str, Any], expected: str | None
):
    found = _older(*prefixes, **application)

    assert expected == found.route_prefix
    assert len(prefixes) == len(found.moved)
    for number, line in enumerate(found.moved):
        assert line.startswith(f"route_prefix of deployment 'D{number}' is the application's today")
    options = DeploymentOptions.of(found.deployments[0].options())
    assert 2 == options.num_replicas


def test_a_file_of_today_has_nothing_to_move():
    assert () == ServeDeploySchema.model_validate(_file()).applications[0].moved


@pytest.mark.parametrize(
    ("prefixes", "said"),
    [(("/a", "/b"), "is the application's"), (("shop",), "begins with a slash")],
)
def test_prefixes_of_deployments_that_cannot_be_one_are_refused(
    prefixes: tuple[str, ...], said: str
):
    with pytest.raises(ValidationError, match=said):
        _older(*prefixes)
