"""Values between machines, with two names for one machine."""

from typing import Any

import numpy
import pytest

import pyserve
from pyserve.errors import ReferenceLost
from pyserve.references import Descriptor
from pyserve.references.remote import FETCH
from tests.mesh.references.apps import SIZE, Holder, elsewhere
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def handle():
    pyserve.start(address="127.0.0.1:0")
    try:
        yield pyserve.run(Holder.bind(), name="values", route_prefix=None)
    finally:
        pyserve.shutdown()


@pytest.fixture
def far():
    references = elsewhere()
    yield references
    references.close()


def test_a_value_of_another_machine_is_copied(handle, far):
    descriptor = Descriptor.from_wire(handle.hold.remote().result(timeout_s=20))
    body = far.fetch_blocking(descriptor, 20.0)
    assert isinstance(body, memoryview)
    assert body.readonly
    assert numpy.arange(SIZE).astype("u1").tobytes() == body
    far.release(descriptor)
    wait_until(lambda: handle.counts.remote().result(timeout_s=20) == (0, 0))
    with pytest.raises(ReferenceLost, match="NOT_FOUND: the value was freed"):
        far.fetch_blocking(descriptor, 20.0)


async def test_a_value_is_fetched_in_a_loop(handle, far):
    descriptor = Descriptor.from_wire(await handle.hold.remote())
    assert SIZE == len(await far.fetch(descriptor))
    far.release(descriptor)


def test_a_fetch_needs_no_place_at_its_producer(handle):
    """Else two replicas that wait for each other's values would wait for ever."""
    assert SIZE == handle.hold_and_fetch.remote().result(timeout_s=20)


def test_a_replica_that_is_not_there_has_lost_its_values(far):
    descriptor = Descriptor(
        holder_id="gone",
        node="somewhere",
        unix_path="",
        key="k",
        size_bytes=1,
        codec="raw",
        application="values",
        deployment="Holder",
    )
    with pytest.raises(ReferenceLost, match="UNAVAILABLE"):
        far.fetch_blocking(descriptor, 20.0)


def test_nobody_from_outside_of_the_mesh_gets_a_value(handle):
    """The path is not known at the ingress, and a plain client has not proven the token."""
    import grpc

    descriptor = Descriptor.from_wire(handle.hold.remote().result(timeout_s=20))
    with grpc.insecure_channel(pyserve.status().addresses[0]) as channel:
        call: Any = channel.unary_stream(FETCH)
        with pytest.raises(grpc.RpcError) as refused:
            list(call(descriptor.key.encode(), timeout=10))
    assert grpc.StatusCode.UNIMPLEMENTED is refused.value.code()
