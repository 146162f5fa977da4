"""``user_config``, which ``reconfigure`` takes on at the start and while replicas serve."""

from __future__ import annotations

import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Combine, Model, Ranked, Stubborn, Tuned, TunedLater
from tests.mesh.ray_serve.conftest import Run
from tests.support.waiting import wait_until


@pytest.mark.parity("G-06")
def test_it_is_given_after_the_constructor(run: Run) -> None:
    handle = run(Tuned.options(user_config={"threshold": 0.5}).bind())

    calls, config = handle.remote().result(timeout_s=30)
    assert ["constructed", "reconfigured 0.5", "warmed up"] == calls
    assert {"threshold": 0.5} == config


def test_without_one_nothing_is_called(run: Run) -> None:
    calls, _ = run(Tuned.bind()).remote().result(timeout_s=30)
    assert ["constructed", "warmed up"] == calls


@pytest.mark.parity("G-06")
@pytest.mark.parity("G-22")
def test_another_one_keeps_the_replicas(run: Run) -> None:
    tuned = TunedLater.options(num_replicas=2)
    handle = run(tuned.options(user_config={"threshold": 1}).bind())
    before = dict(handle.broadcast("__call__").result(timeout_s=30))
    assert {1} == set(before.values())

    run(tuned.options(user_config={"threshold": 2}).bind())

    after = dict(handle.broadcast("__call__").result(timeout_s=30))
    assert before.keys() == after.keys()
    assert {2} == set(after.values())
    assert "RUNNING" == serve.status().applications["default"].status


@pytest.mark.parity("G-06")
def test_what_it_raises_at_the_start_fails_the_deploy(run: Run) -> None:
    bad = Tuned.options(user_config={"threshold": "bad"}, max_constructor_retry_count=1)
    with pytest.raises(RuntimeError, match=r"Tuned\.reconfigure .*a threshold is a number"):
        run(Combine.bind(bad.bind()))


@pytest.mark.parity("G-06")
def test_what_it_raises_at_a_change_fails_the_deploy_and_the_one_before_serves_on(
    run: Run,
) -> None:
    def app(first: object, second: int) -> serve.Application:
        made: serve.Application = Combine.bind(
            Tuned.options(user_config={"threshold": first}).bind(),
            TunedLater.options(user_config={"threshold": second}).bind(),
        )
        return made

    run(app(1, 1))
    tuned = serve.get_deployment_handle("Tuned", "default")
    later = serve.get_deployment_handle("TunedLater", "default")
    replica, _ = later.remote().result(timeout_s=30)

    with pytest.raises(
        RuntimeError, match=r"Tuned\.reconfigure .*a threshold is a number"
    ) as caught:
        run(app("bad", 2))

    assert "in reconfigure" in str(caught.value)
    wait_until(lambda: (replica, 1) == later.remote().result(timeout_s=30), 30)
    wait_until(lambda: "reconfigured 1" == tuned.remote().result(timeout_s=30)[0][-1], 30)
    calls, config = tuned.remote().result(timeout_s=30)
    changes = ["reconfigured 1", "warmed up", "reconfigured bad", "reconfigured 1"]
    assert ["constructed", *changes] == calls
    assert {"threshold": 1} == config

    run(app(3, 3))
    assert (replica, 3) == later.remote().result(timeout_s=30)
    assert {"threshold": 3} == tuned.remote().result(timeout_s=30)[1]


@pytest.mark.parity("G-06")
@pytest.mark.parity("G-21")
def test_a_parameter_rank_gets_the_rank(run: Run) -> None:
    handle = run(Ranked.options(user_config="first").bind())
    run(Ranked.options(user_config="second").bind())
    assert [("first", 0), ("second", 0)] == handle.remote().result(timeout_s=30)


@pytest.mark.slow
def test_the_status_tells_of_a_change_that_failed(run_in_mesh: Run) -> None:
    run_in_mesh(Tuned.options(user_config={"threshold": 1}).bind())
    with pytest.raises(RuntimeError, match="a threshold is a number"):
        run_in_mesh(Tuned.options(user_config={"threshold": "bad"}).bind())

    wait_until(lambda: "RUNNING" == serve.status().applications["default"].status, 30)
    deployment = serve.status().applications["default"].deployments["Tuned"]
    assert "HEALTHY" == deployment.status
    assert "the last deploy failed" in deployment.message
    assert "a threshold is a number" in deployment.message


def test_one_that_cannot_go_back_is_replaced(run: Run) -> None:
    handle = run(Stubborn.options(user_config={"size": 1}).bind())
    replica, _ = handle.remote().result(timeout_s=30)
    with pytest.raises(RuntimeError, match="not again"):
        run(Stubborn.options(user_config={"size": 2}).bind())

    def is_new() -> bool:
        found, calls = handle.remote().result(timeout_s=30)
        return bool(found != replica and calls == 1)

    wait_until(is_new, 30)


def test_a_class_without_the_method_is_refused(run: Run) -> None:
    with pytest.raises(
        ValueError, match=r"Model takes none; write `def reconfigure\(self, config\)`"
    ):
        run(Model.options(user_config={"factor": 3}).bind(2))
