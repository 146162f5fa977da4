"""Programs that are used through handles, in one mesh."""

from __future__ import annotations

import time

import numpy as np
import pytest

import pyserve as serve
from pyserve.errors import NotYetSupported
from tests.ray_programs.conftest import Run
from tests.ray_programs.programs import (
    async_inference,
    asyncio_practices,
    batching,
    configure,
    model_composition,
    references,
    replica_ranks,
    request_routers,
    streams_of_handles,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

TIMEOUT_S = 20


def test_a_composition_chains_dispatches_and_combines(run: Run):
    handle, _ = run(model_composition.app)

    assert 9 == handle.chain.remote(2).result()
    assert [6, 4] == [handle.by_condition.remote(n).result() for n in (2, 3)]
    assert 90 == handle.ensemble.remote(2).result()
    assert [2, 3, 4] == handle.gather.remote([1, 2, 3]).result()


def test_responses_travel_by_value_and_by_reference(run: Run):
    """A text of 600 kB stays where it was made, a short one comes along."""
    handle, _ = run(references.app)

    for words, length in ((2, 11), (100_000, 599_999)):
        assert f"value of {length}" == handle.remote("by_value", words=words).result()
        assert f"reference to {length}" == handle.remote("by_reference", words=words).result()


async def test_streams_pass_through_a_deployment(run: Run):
    handle, _ = run(streams_of_handles.app)
    numbers = handle.options(stream=True)

    assert [0, 10, 20] == [number async for number in numbers.remote(3)]
    assert ["A", "B"] == [letter async for letter in numbers.spell.remote("ab")]


def test_options_replace_those_of_the_decorator_and_a_configuration_is_taken_on(run: Run):
    handle, _ = run(configure.app)
    assert "ham" == handle.remote(0.4).result()
    [replica] = serve.status().applications["program"].deployments["Threshold"].replicas

    run(configure.stricter)

    assert "spam" == handle.remote(0.4).result()
    [same] = serve.status().applications["program"].deployments["Threshold"].replicas
    assert replica.pid == same.pid


def test_an_autoscaled_deployment_begins_with_its_smallest_number(run: Run):
    handle, _ = run(configure.autoscaled)

    assert "spam" == handle.remote(0.9).result()
    states = serve.status().applications["program"].deployments["Autoscaled"].replica_states
    assert {"RUNNING": 1} == states


def test_batches_have_the_size_of_the_user_config(run: Run):
    handle, _ = run(batching.app)

    responses = [handle.remote(number) for number in range(8)]

    assert [number**2 for number in range(8)] == [each.result() for each in responses]
    assert [4, 4] == handle.batch_sizes.remote().result()


def test_batches_are_measured_by_a_function(run: Run):
    """At most six words: three and two, then two and one."""
    handle, _ = run(batching.tokens)

    responses = [handle.remote(text) for text in ("a b c", "d e", "f g", "h")]

    assert [(3, 5), (2, 5), (2, 3), (1, 3)] == [each.result() for each in responses]


def test_a_method_that_blocks_holds_nobody_up(run: Run):
    """In threads by itself, where Ray Serve needs RAY_SERVE_RUN_SYNC_IN_THREADPOOL."""
    handle, _ = run(asyncio_practices.blocking)
    begun = time.monotonic()

    responses = [handle.remote(1.5) for _ in range(4)]

    assert handle.alive.remote().result()
    assert len({each.result() for each in responses}) == 4
    assert time.monotonic() - begun < 4 * 1.5


def test_a_constructor_has_the_loop_and_may_set_its_executor(run: Run):
    handle, _ = run(asyncio_practices.pool)

    assert handle.thread.remote().result().startswith("mine")
    assert [3.0, 2.0] == pytest.approx(handle.remote(np.diag([3.0, 2.0])).result())


@pytest.mark.parity("G-76")
def test_a_router_of_ones_own_orders_replicas_by_what_they_say(run: Run):
    handle, _ = run(request_routers.app)

    # The stats come a moment after the replicas.
    wait_until(lambda: 1 == handle.remote().result(), TIMEOUT_S)
    assert {1} == {handle.remote().result() for _ in range(10)}


@pytest.mark.parity("G-21")
def test_reconfigure_is_told_the_rank(run: Run):
    handle, _ = run(replica_ranks.app)
    found = handle.broadcast("__call__").results(timeout_s=TIMEOUT_S)
    assert [((n, 2), n, "model_v1") for n in range(2)] == sorted(found)

    run(replica_ranks.renamed)

    found = handle.broadcast("__call__").results(timeout_s=TIMEOUT_S)
    assert [((n, 2), n, "model_v2") for n in range(2)] == sorted(found)


def test_tasks_of_a_queue_say_what_to_do_until_they_come():
    with pytest.raises(NotYetSupported, match="until then take the messages in a task"):
        async_inference.consumer()
