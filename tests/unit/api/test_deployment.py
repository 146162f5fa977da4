"""Deployments, applications, and the graph that travels to the controller."""

import pickle
from typing import Any

import cloudpickle
import pytest

import pyserve
from pyserve.api.graph import PackedApplication, pack
from pyserve.errors import OptionError, UsageError
from pyserve.types import ApplicationName, DeploymentKey, DeploymentName


@pyserve.deployment
class Leaf:
    def __init__(self, size: int = 1) -> None:
        self.size = size


@pyserve.deployment(name="root", num_replicas=2, max_ongoing_requests=90)
class Root:
    def __init__(self, *children: object, **named: object) -> None:
        self.children = children
        self.named = named

    @pyserve.batch(max_batch_size=80, max_concurrent_batches=2)
    async def work(self, items: list[int]) -> list[int]:
        return items


def packed(application: pyserve.Application) -> PackedApplication:
    return pack(application, ApplicationName("app"))


def test_a_deployment_has_the_name_of_its_class_unless_it_is_given_one() -> None:
    assert ("Leaf", "root") == (Leaf.name, Root.name)
    assert "other" == Leaf.options(name="other").name


def test_options_make_a_copy() -> None:
    changed = Root.options(num_replicas=5)
    assert (2, 5, 90) == (
        Root.settings.num_replicas,
        changed.settings.num_replicas,
        changed.settings.max_ongoing_requests,
    )


def test_an_unknown_option_names_the_one_that_was_meant() -> None:
    with pytest.raises(OptionError, match="num_replicas"):
        pyserve.deployment(num_replica=2)  # type: ignore[call-overload]


def test_no_replicas_and_no_requests_are_refused_in_code() -> None:
    with pytest.raises(ValueError, match="num_replicas=0 is not allowed"):
        pyserve.deployment(num_replicas=0)
    with pytest.raises(ValueError, match="num_replicas=0 is not allowed"):
        Leaf.options(num_replicas=0)
    with pytest.raises(ValueError, match="max_ongoing_requests=0 is not allowed"):
        pyserve.deployment(max_ongoing_requests=0)
    with pytest.raises(ValueError, match="max_ongoing_requests=0 is not allowed"):
        Leaf.options(max_ongoing_requests=0)


def test_only_a_class_or_a_function_can_be_a_deployment() -> None:
    with pytest.raises(TypeError, match="neither a class nor a function"):
        pyserve.deployment(3)  # type: ignore[call-overload]


def shout(text: str) -> str:
    return text.upper()


def test_a_function_is_deployed_under_its_name_and_takes_no_arguments_of_bind() -> None:
    deployed = pyserve.deployment(shout)
    assert ("shout", shout) == (deployed.name, deployed.target)
    assert "shout" == deployed.bind().name
    with pytest.raises(TypeError, match="a function has no constructor"):
        deployed.bind("text")  # type: ignore[call-arg]


def test_a_function_without_a_name_needs_one() -> None:
    nameless = pyserve.deployment(lambda text: text)
    with pytest.raises(OptionError, match="name"):
        nameless.bind()
    assert "named" == nameless.options(name="named").bind().name


def test_a_deployment_is_not_called() -> None:
    with pytest.raises(RuntimeError, match=r"Leaf\.bind\(\.\.\.\)"):
        Leaf()


def test_a_class_may_derive_from_a_deployment() -> None:
    class Special(Leaf):  # type: ignore[misc,valid-type]  # mypy sees no decorated class
        pass

    assert (Leaf.target,) == Special.__bases__
    assert 3 == Special(3).size


def test_wrong_arguments_are_found_where_they_are_bound() -> None:
    with pytest.raises(TypeError, match=r"Leaf\.bind: .*length.*it takes \(size: int = 1\)"):
        Leaf.bind(length=3)


def test_a_graph_lists_children_before_parents_and_replaces_them_by_handles() -> None:
    child = Leaf.bind(3)
    found = packed(Root.bind({"deep": [child]}, again=child))
    assert ["Leaf", "root"] == [each.name for each in found.deployments]
    assert "root" == found.ingress
    handle = pyserve.DeploymentHandle("Leaf", "app")
    args, kwargs = cloudpickle.loads(found.deployments[1].arguments)
    assert (({"deep": [handle]},), {"again": handle}) == (args, kwargs)
    assert ((3,), {}) == cloudpickle.loads(found.deployments[0].arguments)


def test_deployments_of_one_name_get_numbers_and_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = Leaf.options(name="Leaf_1").bind()
    found = packed(Root.bind(taken, Leaf.bind(1), Leaf.bind(2)))
    assert ["Leaf_1", "Leaf", "Leaf_2", "root"] == [each.name for each in found.deployments]
    assert "Leaf_2" == found.deployments[2].options.name
    [args, _] = cloudpickle.loads(found.deployments[3].arguments)
    assert ["Leaf_1", "Leaf", "Leaf_2"] == [each.deployment_name for each in args]
    [line] = caplog.messages
    assert "several deployments named 'Leaf', and one of them becomes 'Leaf_2'" in line


def test_those_that_are_bound_to_another_one_are_counted_before_it() -> None:
    found = packed(Root.bind(Root.bind()))
    assert ["root", "root_1"] == [each.name for each in found.deployments]
    assert "root_1" == found.ingress


def test_a_user_config_needs_a_method_that_takes_it() -> None:
    with pytest.raises(UsageError, match=r"Leaf takes none; write `def reconfigure"):
        packed(Leaf.options(user_config={"a": 1}).bind())
    with pytest.raises(UsageError, match="shout takes none"):
        packed(pyserve.deployment(user_config=3)(shout).bind())


def test_an_argument_that_cannot_travel_says_so() -> None:
    generator = (number for number in range(3))
    with pytest.raises(UsageError, match=r"root\.bind\(\.\.\.\) cannot travel.*generator"):
        packed(Root.bind(generator))


@pytest.mark.parametrize(
    ("deployment", "limit"),
    [
        (Leaf, 100),
        (Root, 90),
        (pyserve.deployment(Root.target), 320),  # twice max_batch_size × max_concurrent_batches
    ],
)
def test_the_limit_of_ongoing_requests_is_filled_in(
    deployment: pyserve.Deployment[Any], limit: int
) -> None:
    (found,) = packed(deployment.bind()).deployments
    assert limit == found.options.max_ongoing_requests


def test_interceptors_travel_beside_the_options() -> None:
    (found,) = packed(Leaf.options(interceptors=[len]).bind()).deployments
    assert [len] == cloudpickle.loads(found.interceptors)
    assert () == found.options.interceptors


def test_a_handle_survives_pickling() -> None:
    handle = pyserve.DeploymentHandle("Leaf", "app")
    copy = pickle.loads(pickle.dumps(handle))
    assert (handle, hash(handle)) == (copy, hash(copy))
    assert ("Leaf", "app") == (copy.deployment_name, copy.app_name)


@pytest.mark.parity("S-25")
def test_a_limit_below_the_batch_size_warns() -> None:
    with pytest.warns(UserWarning, match="max_ongoing_requests=70 .*max_batch_size=80"):
        packed(Root.options(max_ongoing_requests=70).bind())


def test_a_limit_below_the_configured_batch_size_warns() -> None:
    with pytest.warns(UserWarning, match="max_ongoing_requests=8 .*max_batch_size=32"):
        packed(Leaf.options(max_ongoing_requests=8, batching_config={}).bind())


def chain(upstream: int, downstream: int) -> pyserve.Application:
    below = Leaf.options(name="below", batching_config={"max_batch_size": downstream})
    above = Leaf.options(name="above", batching_config={"max_batch_size": upstream})
    application: pyserve.Application = above.bind(below.bind())
    return application


@pytest.mark.parity("S-24")
def test_calls_of_a_continuously_batched_class_are_those_that_run_and_wait() -> None:
    @pyserve.deployment
    @pyserve.continuous(max_running=200, max_waiting=5)
    class Stepping:
        def admit(self, request: int) -> int:
            return request

        def step(self, states: list[int]) -> list[None]:
            return [None for _ in states]

    assert 205 == packed(Stepping.bind()).deployments[0].options.max_ongoing_requests
    with pytest.warns(UserWarning, match="its steps never have max_running=200 requests"):
        packed(Stepping.options(max_ongoing_requests=50).bind())


def test_batches_that_leave_a_rest_downstream_warn() -> None:
    with pytest.warns(UserWarning, match="'above' calls 'below'.* 2 of them are left over"):
        packed(chain(8, 6))


@pytest.mark.parity("S-24")
@pytest.mark.parametrize("sizes", [(8, 4), (8, 8), (4, 8)])
def test_batches_whose_sizes_are_multiples_do_not_warn(sizes: tuple[int, int]) -> None:
    packed(chain(*sizes))


def test_a_name_may_come_first():
    @pyserve.deployment("echo", num_replicas=2)
    class Named:
        pass

    assert ("echo", 2) == (Named.name, Named.num_replicas)
    assert "other" == pyserve.deployment("other")(Named.target).name
    with pytest.raises(OptionError, match="has two names, 'a' and 'b'"):
        pyserve.deployment("a", name="b")


def test_a_deployment_tells_its_options_under_ray_serves_names():
    made = pyserve.deployment(num_cpus_of, max_ongoing_requests=7, user_config={"a": 1})
    made = made.options(ray_actor_options={"num_cpus": 2}, logging_config="DEBUG")

    assert made.func_or_class is num_cpus_of
    assert (1, 7, -1, {"a": 1}, None) == (
        made.num_replicas,
        made.max_ongoing_requests,
        made.max_queued_requests,
        made.user_config,
        made.backpressure_config,
    )
    assert 2 == made.ray_actor_options["num_cpus"]
    assert "DEBUG" == made.logging_config.log_level


def test_options_take_another_class():
    class Other:
        pass

    made = pyserve.deployment(name="kept")(num_cpus_of)

    assert made.options(func_or_class=Other).func_or_class is Other
    assert "kept" == made.options(func_or_class=Other).name
    with pytest.raises(UsageError, match="neither a class nor a function"):
        made.options(func_or_class="Other")


def test_an_application_logs_as_its_run_says_unless_a_deployment_does():
    loud = pyserve.LoggingConfig(log_level="DEBUG")
    own = Leaf.options(name="own", logging_config="ERROR")
    packed = pack(Root.bind(Leaf.bind(), own.bind()), ApplicationName("app"), loud)

    levels = {each.name: each.options.logging_config.log_level for each in packed.deployments}
    assert {"Leaf": "DEBUG", "root": "DEBUG", "own": "ERROR"} == levels


def num_cpus_of(request: object) -> int:
    return 1


@pytest.mark.parity("G-67")
def test_whom_a_deployment_calls_is_known_from_the_handles_in_its_arguments() -> None:
    leaf = Leaf.bind()
    found = pyserve.DeploymentHandle("Store", "elsewhere")
    middle = Root.options(name="middle").bind(named={"deep": [leaf, found]})

    calls = {item.name: item.calls for item in packed(Root.bind(middle, leaf)).deployments}

    own = {name: DeploymentKey(ApplicationName("app"), name) for name in calls}
    store = DeploymentKey(ApplicationName("elsewhere"), DeploymentName("Store"))
    assert () == calls[DeploymentName("Leaf")]
    assert {own[DeploymentName("Leaf")], store} == set(calls[DeploymentName("middle")])
    assert {own[DeploymentName("Leaf")], own[DeploymentName("middle")]} == set(
        calls[DeploymentName("root")]
    )
