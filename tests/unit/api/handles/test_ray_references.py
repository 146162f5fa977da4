"""References of Ray among the arguments of calls, with a Ray of the test's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

import pyserve
from tests.support.waiting import eventually
from tests.unit.api.handles.fakes import FakeCaller


class Reference:
    """Stands for ``ray.ObjectRef``."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.future.__await__()


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("ray")
    module.ObjectRef = Reference  # type: ignore[attr-defined]  # that of the test
    monkeypatch.setitem(sys.modules, "ray", module)


async def test_they_are_values_before_the_call_is_sent_and_the_loop_goes_on(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
) -> None:
    first, second = Reference(), Reference()

    response = handle.remote(first, 5, key=second)
    await asyncio.sleep(0)
    assert [] == caller.calls
    second.future.set_result("b")
    await asyncio.sleep(0)
    assert [] == caller.calls
    first.future.set_result("a")

    await eventually(lambda: caller.calls)
    assert (["a", 5], {"key": "b"}) == caller.calls[0].arguments()
    caller.calls[0].answer("done")
    assert "done" == await response


async def test_they_may_lie_in_a_list_a_tuple_or_a_dict_that_is_an_argument(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
) -> None:
    reference = Reference()
    reference.future.set_result(7)

    handle.remote([1, reference], (reference,), key={"a": reference, "b": 2})

    await eventually(lambda: caller.calls)
    assert ([[1, 7], (7,)], {"key": {"a": 7, "b": 2}}) == caller.calls[0].arguments()


async def test_responses_and_references_of_ray_may_stand_side_by_side(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
) -> None:
    reference = Reference()
    reference.future.set_result(7)

    handle.remote(handle.remote(1), reference)

    await eventually(lambda: caller.calls)
    caller.calls[0].answer("inner")
    await eventually(lambda: 2 == len(caller.calls))
    assert (["inner", 7], {}) == caller.calls[1].arguments()


async def test_a_task_that_has_failed_fails_the_call_with_its_error(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
) -> None:
    reference = Reference()
    reference.future.set_exception(KeyError("of the task"))

    with pytest.raises(KeyError, match="of the task"):
        await handle.remote([reference])

    assert [] == caller.calls


async def test_the_time_limit_counts_while_a_task_runs(
    handle: pyserve.DeploymentHandle, caller: FakeCaller
) -> None:
    with pytest.raises(pyserve.RequestTimeout, match="while its inputs were made"):
        await handle.options(timeout_s=0.01).remote(Reference())

    assert [] == caller.calls


async def test_a_ray_that_is_being_imported_has_no_references_yet(
    handle: pyserve.DeploymentHandle, caller: FakeCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))

    handle.remote([1])

    assert ([[1]], {}) == caller.calls[0].arguments()
