"""What ``pyserve.testing`` offers to tests of services."""

import asyncio
import threading

import pytest

import pyserve
from pyserve import testing
from pyserve.driver.local import find_local
from pyserve.errors import WrongMoment
from pyserve.exceptions import NotInReplica
from tests.support.waiting import wait_until


@pyserve.deployment
class Doubler:
    @pyserve.multiplexed(max_num_models_per_replica=1)
    async def load(self, model_id: str) -> str:
        return model_id.upper()

    async def __call__(self, number: int) -> int:
        return number * 2

    async def model(self) -> str:
        return await self.load(pyserve.get_multiplexed_model_id())


@pytest.mark.parity("G-56")
def test_an_application_runs_as_long_as_the_block():
    before = set(threading.enumerate())
    with testing.local(Doubler.bind()) as handle:
        assert 4 == handle.remote(2).result(timeout_s=30)
    assert find_local() is None
    wait_until(lambda: set(threading.enumerate()) <= before, what="its threads have ended")


async def test_blocks_may_be_nested_and_end_in_loops():
    with (
        testing.local(Doubler.bind(), name="one") as one,
        testing.local(Doubler.bind(), name="two") as two,
    ):
        assert 8 == await two.remote(one.remote(2))


def test_a_block_is_not_replaced_by_one_of_the_same_name():
    """As a fixture's would be by that of a test."""
    with testing.local(Doubler.bind()) as outer:
        with (
            pytest.raises(WrongMoment, match="an application 'default' runs in this process"),
            testing.local(Doubler.bind()),
        ):
            raise AssertionError("the block is not entered")
        assert 4 == outer.remote(2).result(timeout_s=5)
    with testing.local(Doubler.bind()) as handle:
        assert 4 == handle.remote(2).result(timeout_s=5)


def test_a_block_that_raises_ends_its_application():
    with pytest.raises(KeyError), testing.local(Doubler.bind()):
        raise KeyError
    assert find_local() is None


async def test_a_method_can_be_called_as_in_a_request():
    doubler = Doubler.target()
    with testing.request(multiplexed_model_id="small", timeout_s=5, request_id="r1") as request:
        assert "SMALL" == await doubler.model()
        assert "small" == await asyncio.create_task(_model_id())
        assert "r1" == pyserve.get_request_context().request_id == request.request_id
        assert 0 < (request.time_remaining() or 0) <= 5
    assert "" == pyserve.get_multiplexed_model_id()
    assert request.is_ended


async def _model_id() -> str:
    return pyserve.get_multiplexed_model_id()


def test_code_can_run_as_in_a_replica():
    instance = object()
    with testing.replica(instance, deployment="Doubler") as context:
        assert context is pyserve.get_replica_context()
        assert ("Doubler", instance) == (context.deployment, context.servable_object)
    with pytest.raises(NotInReplica):
        pyserve.get_replica_context()
