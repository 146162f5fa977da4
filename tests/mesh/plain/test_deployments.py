"""What handles get from deployments of every shape."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pyserve
from services.echo import echo_pb2

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("mesh")]

# Above every limit of messages, and no round number.
_LARGE_BYTES = 20 * 1024 * 1024 + 7


def handle(name: str) -> pyserve.DeploymentHandle[Any]:
    return pyserve.DeploymentHandle(name, "default")


@pytest.mark.parity("S-01")
async def test_a_function_is_a_deployment() -> None:
    assert "ABC" == await handle("shout").remote("abc")
    letters = handle("spell").options(stream=True).remote("abc")
    assert ["a", "b", "c"] == [letter async for letter in letters]
    assert [1.0, 2.0] == list(
        await asyncio.gather(handle("halve").remote(2), handle("halve").remote(4))
    )


@pytest.mark.parity("S-01")
async def test_any_method_of_a_class_can_be_called_also_beside_rpcs() -> None:
    assert [1, 5] == await handle("Echo").plain.remote(1, second=5)
    reply = await handle("Echo").Echo.remote(echo_pb2.EchoRequest(payload=b"x"))
    assert isinstance(reply, echo_pb2.EchoReply)


@pytest.mark.parity("S-21")
async def test_a_method_is_batched_by_the_deployments_options() -> None:
    results = await asyncio.gather(*(handle("Scorer").score.remote(each) for each in range(8)))
    assert list(range(8)) == [number for _, number in results]
    assert 4 == max(size for size, _ in results)
    assert (1, 9) == await handle("Scorer").score.remote(9)


async def test_a_model_is_there_before_the_first_call() -> None:
    store = handle("Store")
    assert "model early" == await store.model.options(multiplexed_model_id="early").remote()


@pytest.mark.parity("S-79")
async def test_messages_above_the_limit_pass_between_handles() -> None:
    store = handle("Store").options(_by_reference=False)
    assert _LARGE_BYTES == await store.size.remote(bytes(_LARGE_BYTES))
    values = np.arange(_LARGE_BYTES // 8, dtype=np.float64)
    assert values.sum() == await store.total.remote(values)
    assert _LARGE_BYTES // 8 == (await store.ones.remote(_LARGE_BYTES // 8)).sum()


async def test_large_arrays_are_aligned_at_both_ends() -> None:
    values = np.arange(_LARGE_BYTES // 8, dtype=np.float64)
    for by_reference in (True, False):
        store = handle("Store").options(_by_reference=by_reference)
        assert await store.is_aligned.remote(values)
        assert (await store.ones.remote(100_000)).flags.aligned


async def test_wrong_arguments_are_pythons_own_error() -> None:
    with pytest.raises(TypeError, match=r"plain\(\) missing 1 required positional argument"):
        await handle("Echo").plain.remote()
