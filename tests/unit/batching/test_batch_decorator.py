"""``@pyserve.batch`` on functions and methods, on a running loop."""

import asyncio
import contextvars
import copy
from typing import Any

import cloudpickle
import grpc
import pytest

import pyserve
from pyserve.errors import BatchError
from tests.support.waiting import eventually


class Doubler:
    """Records the batches that it is asked for."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.release = asyncio.Event()
        self.release.set()

    @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=0.01)
    async def double(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        await self.release.wait()
        return [2 * number for number in numbers]


def returning(result: object, *, size: int = 2) -> Any:
    @pyserve.batch(max_batch_size=size, batch_wait_timeout_s=0.01)
    async def function(items: list[object]) -> Any:
        return result(items) if callable(result) else result

    return function


async def both(function: Any) -> list[Any]:
    return list(await asyncio.gather(function(1), function(2), return_exceptions=True))


@pytest.mark.parity("S-15")
async def test_concurrent_calls_become_one_and_get_their_own_results() -> None:
    doubler = Doubler()
    assert [2, 4, 6] == await asyncio.gather(*(doubler.double(number) for number in (1, 2, 3)))
    assert [[1, 2, 3]] == doubler.batches


@pytest.mark.parity("S-19")
async def test_instances_and_functions_do_not_share_batches() -> None:
    """A batch is per replica and decorated function, however its callers are mixed."""
    first, second = Doubler(), Doubler()
    identity = returning(lambda items: items)
    results = await asyncio.gather(
        first.double(1), second.double(2), identity(3), first.double(4), identity(5)
    )
    assert [2, 4, 3, 8, 5] == results
    assert ([[1, 4]], [[2]]) == (first.batches, second.batches)


async def test_what_arrives_during_a_run_leaves_together() -> None:
    doubler = Doubler()
    doubler.release.clear()
    early = [asyncio.create_task(doubler.double(number)) for number in (1, 2, 3)]
    await eventually(lambda: doubler.batches)
    late = [asyncio.create_task(doubler.double(number)) for number in (4, 5)]
    doubler.release.set()
    assert [2, 4, 6, 8, 10] == await asyncio.gather(*early, *late)
    assert [[1, 2, 3], [4, 5]] == doubler.batches


async def test_a_cancelled_caller_is_dropped_before_the_run() -> None:
    doubler = Doubler()
    gone = asyncio.create_task(doubler.double(1))
    stays = asyncio.create_task(doubler.double(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert 4 == await stays
    assert [[2]] == doubler.batches


async def test_a_caller_cancelled_during_the_run_does_not_disturb_the_others() -> None:
    doubler = Doubler()
    doubler.release.clear()
    tasks = [asyncio.create_task(doubler.double(number)) for number in (1, 2, 3)]
    await eventually(lambda: doubler.batches)
    tasks[1].cancel()
    doubler.release.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (2, 6) == (results[0], results[2])
    assert isinstance(results[1], asyncio.CancelledError)


async def test_an_exception_instance_fails_its_caller_only() -> None:
    abort = pyserve.Abort(grpc.StatusCode.NOT_FOUND, "no such item")
    assert ["fine", abort] == await both(returning(["fine", abort]))


@pytest.mark.parity("S-15")
async def test_an_exception_raised_fails_every_caller() -> None:
    def fail(_: list[object]) -> object:
        raise KeyError("model")

    results = await both(returning(fail))
    assert [KeyError, KeyError] == [type(result) for result in results]


async def test_a_tuple_and_an_array_are_as_good_as_a_list() -> None:
    numpy = pytest.importorskip("numpy")
    assert [1, 2] == await both(returning((1, 2)))
    rows = await both(returning(numpy.arange(4).reshape(2, 2)))
    assert [[0, 1], [2, 3]] == [row.tolist() for row in rows]


@pytest.mark.parity("S-15")
@pytest.mark.parametrize(
    ("result", "says"),
    [
        ([1], "returned 1 results for a batch of 2"),
        ([1, 2, 3], "returned 3 results for a batch of 2"),
        (None, "returned NoneType"),
        ("ab", "returned str"),
        ({0: 1, 1: 2}, "returned dict"),
        (7, "returned int"),
    ],
)
async def test_a_wrong_result_fails_every_caller_and_names_function_and_lengths(
    result: object, says: str
) -> None:
    results = await both(returning(result))
    for error in results:
        assert isinstance(error, BatchError)
        assert says in str(error)
        assert "function" in str(error)


@pytest.mark.parity("S-16")
async def test_several_parameters_become_several_lists() -> None:
    @pyserve.batch(max_batch_size=2)
    async def add(left: list[int], right: list[int]) -> list[int]:
        assert [1, 3] == left
        return [a + b for a, b in zip(left, right, strict=True)]

    assert [3, 7] == await asyncio.gather(add(1, 2), add(3, 4))


@pytest.mark.parity("S-16")
async def test_keywords_and_defaults_become_lists_too() -> None:
    columns = []

    class Scaler:
        @pyserve.batch(max_batch_size=4)
        async def scale(self, numbers: list[int], by: Any = 2, *, plus: Any = 0) -> list[int]:
            columns.append((numbers, by, plus))
            return [n * b + p for n, b, p in zip(numbers, by, plus, strict=True)]

    scale: Any = Scaler().scale
    results = await asyncio.gather(
        scale(1), scale(2, 10), scale(numbers=3, by=100), scale(4, plus=5)
    )
    assert [2, 20, 300, 13] == results
    assert [([1, 2, 3, 4], [2, 10, 100, 2], [0, 0, 0, 5])] == columns


@pytest.mark.parity("S-20")
async def test_eight_calls_of_size_four_are_two_batches_answered_one_by_one_in_order() -> None:
    """The example of the seeds, through the decorator."""
    batches = []

    class SimpleBatchedModel:
        @pyserve.batch(batch_wait_timeout_s=0.1, max_batch_size=4)
        async def run(self, multiple_samples: list[int]) -> list[int]:
            batches.append(multiple_samples)
            return [sample * 2 for sample in multiple_samples]

    model = SimpleBatchedModel()
    responses = [asyncio.ensure_future(model.run(i)) for i in range(8)]
    for i, response in enumerate(responses):
        assert await response == i * 2
    assert [[0, 1, 2, 3], [4, 5, 6, 7]] == batches


@pytest.mark.parity("S-15")
async def test_a_batched_call_operator_has_one_queue_per_instance() -> None:
    """Python looks ``__call__`` up in the class every time."""

    class Model:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
        async def __call__(self, samples: list[int]) -> list[int]:
            self.sizes.append(len(samples))
            return [sample * 2 for sample in samples]

    model = Model()
    call: Any = model
    assert [0, 2, 4] == await asyncio.gather(*(call(number) for number in range(3)))
    assert [3] == model.sizes


async def test_an_overriding_method_may_call_the_one_it_overrides() -> None:
    class Tripler(Doubler):
        @pyserve.batch(max_batch_size=3, batch_wait_timeout_s=0.01)
        async def double(self, numbers: list[int]) -> list[int]:
            doubled = await asyncio.gather(*(super(Tripler, self).double(n) for n in numbers))
            return [n + d for n, d in zip(numbers, doubled, strict=True)]

    tripler = Tripler()
    assert [3, 6, 9] == await asyncio.gather(*(tripler.double(number) for number in (1, 2, 3)))
    assert [[1, 2, 3]] == tripler.batches
    assert 12 == await tripler.double(4)


def test_what_has_no_columns_is_refused_where_it_is_written() -> None:
    with pytest.raises(BatchError, match=r"'\*items.*' is no fixed number"):

        @pyserve.batch
        async def variadic(*items: list[int]) -> list[int]:
            return []


async def test_calls_of_what_has_no_parameter_are_refused() -> None:
    """Not the decorator: classes that never call it are none the worse for it."""

    @pyserve.batch
    async def nullary() -> list[int]:
        return []

    class Holder:
        @pyserve.batch
        async def nullary(self) -> list[int]:
            return []

    for batched in (nullary, Holder().nullary):
        with pytest.raises(BatchError, match="takes nothing"):
            await batched()


async def test_an_instance_without_a_dict_is_refused() -> None:
    class Slotted:
        __slots__ = ()

        @pyserve.batch
        async def run(self, items: list[int]) -> list[int]:
            return items

    with pytest.raises(BatchError, match="__slots__"):
        await Slotted().run(1)


@pytest.mark.parity("S-16")
async def test_a_wrong_number_of_arguments_fails_that_call() -> None:
    with pytest.raises(TypeError, match=r"double\(\): too many positional arguments"):
        await Doubler().double(1, 2)


async def test_a_batch_runs_in_no_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="nobody")
    seen = []

    @pyserve.batch(max_batch_size=1)
    async def look(items: list[int]) -> list[int]:
        seen.append(variable.get())
        return items

    variable.set("a caller")
    await look(1)
    assert ["nobody"] == seen


def test_another_loop_gets_batches_of_its_own() -> None:
    function = returning(lambda items: items, size=1)
    assert [1, 1] == [asyncio.run(function(1)) for _ in range(2)]


def _waits(function: Any) -> bool:
    stats = function.stats()
    return stats is not None and stats.waiting == 1


@pytest.mark.parametrize("runs", [False, True], ids=["waits", "runs"])
def test_a_second_loop_is_refused_while_calls_of_the_first_are_left(runs: bool) -> None:
    """A queue in the place of theirs would hide them from flush, drain and stats."""
    gates: list[asyncio.Event] = []

    @pyserve.batch(max_batch_size=1 if runs else 2, batch_wait_timeout_s=30.0)
    async def function(items: list[int]) -> list[int]:
        if runs:
            gates.append(asyncio.Event())
            await gates[0].wait()
        return items

    async def begin() -> asyncio.Task[int]:
        task = asyncio.create_task(function(1))
        await eventually(lambda: bool(gates) if runs else _waits(function))
        return task

    async def end(task: asyncio.Task[int]) -> int:
        for gate in gates:
            gate.set()
        function.flush()
        return await task

    with asyncio.Runner() as first, asyncio.Runner() as second:
        task = first.run(begin())
        with pytest.raises(BatchError, match="function is used by two event loops at once"):
            second.run(function(2))
        assert 1 == first.run(end(task))
        gates.clear()

        async def alone() -> int:
            task = await begin()
            return await end(task)

        assert 1 == second.run(alone())


def test_calls_of_a_closed_loop_are_in_nobodys_way() -> None:
    function = returning(lambda items: items, size=1)

    async def leave() -> None:
        function.__pyserve_submit__(1)

    asyncio.run(leave())
    assert 2 == asyncio.run(function(2))


def test_only_a_coroutine_function_can_be_batched() -> None:
    with pytest.raises(BatchError, match=r"test_batch_decorator\.py:\d+.*write `async def`"):

        @pyserve.batch  # type: ignore[arg-type]  # that is the mistake
        def plain(items: list[int]) -> list[int]:
            return items


async def test_copies_and_pickles_of_an_instance_begin_with_batches_of_their_own() -> None:
    doubler = Sizes()
    assert [1] == await asyncio.gather(doubler.run(0))
    copies = [
        copy.copy(doubler),
        copy.deepcopy(doubler),
        cloudpickle.loads(cloudpickle.dumps(doubler)),
    ]
    for each in copies:
        assert [2, 2] == await asyncio.gather(each.run(0), each.run(0))
    assert [1, 1] == [len({id(each.run) for _ in range(3)}) for each in copies[:2]]
    assert doubler.run is not copies[0].run


async def test_a_batched_function_can_be_shipped_after_use() -> None:
    function = returning(lambda items: items)
    assert 1 == await function(1)
    assert 2 == await cloudpickle.loads(cloudpickle.dumps(function))(2)


class Sizes:
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
    async def run(self, items: list[int]) -> list[int]:
        return [len(items)] * len(items)
