"""The blocks of the performance guide: ``ray.get`` is ``pyserve.get``."""

import pytest

import pyserve as serve
from tests.seeds.guide import Adder, BatchedDoubler, Doubler

pytestmark = pytest.mark.slow


@pytest.mark.parity("S-03")
def test_a_call_without_batching_is_answered():
    handle = serve.run(Doubler.bind(), name="guide-single")

    assert 2 == serve.get(handle.remote(1))


@pytest.mark.parity("S-15")
@pytest.mark.parity("S-19")
def test_eight_calls_are_one_batch_and_eight_answers():
    """A numpy array is split along its first axis; the batch leaves when it is full."""
    handle = serve.run(BatchedDoubler.bind(), name="guide-batched")

    answers = serve.get([handle.remote(sample) for sample in range(8)])

    assert [sample * 2 for sample in range(8)] == answers
    assert [8] == serve.get(handle.sizes.remote())


@pytest.mark.parity("S-16")
def test_every_parameter_becomes_a_list():
    handle = serve.run(Adder.bind(), name="guide-columns")

    calls = [handle.add.remote(n, str(n), scale=10) for n in range(4)]

    assert [0, 20, 40, 60] == serve.get(calls)


@pytest.mark.parity("S-13")
def test_the_old_name_of_the_limit_warns_and_counts():
    with pytest.warns(match="max_ongoing_requests"):
        deployment = serve.deployment(max_concurrent_queries=1000)(Doubler.target)

    assert 1000 == deployment.settings.max_ongoing_requests
