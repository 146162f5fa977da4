"""Batches on a loop of virtual time: windows, limits, contexts, the ends of callers and runs."""

import asyncio
import functools
from typing import Any

import pytest

import pyserve
from pyserve.batching import Reason
from pyserve.batching.decorator import drain, flush
from pyserve.errors import BatchError, OptionError, RequestTimeout
from pyserve.request import CURRENT, Request, current_request, get_multiplexed_model_id
from tests.unit.batching.virtual import VirtualLoop, run_virtually


def virtual(test: Any) -> Any:
    """Run an async test on a loop of virtual time."""

    @functools.wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        run_virtually(test(*arguments, **keywords))

    return run


def now() -> float:
    return asyncio.get_running_loop().time() - 1000.0


class Recorder:
    """Keeps what each batch held, and when it began; a step takes ``step_s``."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.batches: list[list[Any]] = []
        self.times: list[float] = []
        self.models: list[str] = []
        self.step_s = step_s

    @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=0.1)
    async def run(self, items: list[Any]) -> list[Any]:
        self.batches.append(items)
        self.times.append(round(now(), 9))
        self.models.append(get_multiplexed_model_id())
        await asyncio.sleep(self.step_s)
        return [("done", item) for item in items]


async def under(request: Request | None, call: Any) -> Any:
    CURRENT.set(request)
    return await call()


# --- windows and limits ------------------------------------------------------------------------


@pytest.mark.parity("S-17")
@virtual
async def test_the_window_runs_from_the_first_call_of_a_batch():
    recorder = Recorder()
    first = asyncio.create_task(recorder.run(1))
    await asyncio.sleep(0.06)
    second = asyncio.create_task(recorder.run(2))
    await asyncio.gather(first, second)
    assert ([[1, 2]], [0.1]) == (recorder.batches, recorder.times)


@pytest.mark.parity("S-17")
@virtual
async def test_a_full_batch_leaves_in_the_turn_that_fills_it():
    recorder = Recorder()
    await asyncio.gather(*(recorder.run(number) for number in range(4)))
    assert ([[0, 1, 2, 3]], [0.0]) == (recorder.batches, recorder.times)


@pytest.mark.parity("S-17")
@pytest.mark.slow
def test_a_real_window_of_100_ms_ends_within_a_millisecond():
    """The timer's precision on a quiet loop; a busy machine gets several chances."""

    class Timed:
        @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.1)
        async def run(self, items: list[float]) -> list[float]:
            loop_time = asyncio.get_running_loop().time()
            return [loop_time - item for item in items]

    async def once() -> float:
        return float(await Timed().run(asyncio.get_running_loop().time()))

    best = 1.0
    for _ in range(20):
        waited = asyncio.run(once())
        assert waited >= 0.1 - 1e-6
        best = min(best, waited)
        if best <= 0.101:
            break
    assert best <= 0.101


@pytest.mark.parity("S-22")
@virtual
async def test_nothing_is_scheduled_while_no_call_waits():
    """No polling: an idle queue has no timer and no handle, before and after a batch."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    recorder = Recorder()
    assert recorder.run is not None
    assert loop.timers() == 0
    call = asyncio.create_task(recorder.run(1))
    await asyncio.sleep(0.01)
    assert loop.timers() == 1
    await call
    await asyncio.sleep(0)
    assert loop.timers() == 0
    assert not loop._ready


@virtual
async def test_limits_can_be_set_while_calls_wait():
    recorder = Recorder()
    calls = [asyncio.create_task(recorder.run(number)) for number in range(3)]
    await asyncio.sleep(0.01)
    assert [] == recorder.batches
    recorder.run.set_max_batch_size(3)
    await asyncio.gather(*calls)
    assert ([[0, 1, 2]], [0.01]) == (recorder.batches, recorder.times)
    recorder.run.set_batch_wait_timeout_s(0.5)
    await recorder.run(9)
    assert recorder.times[-1] == 0.51
    with pytest.raises(OptionError, match="max_batch_size"):
        recorder.run.set_max_batch_size(0)


@virtual
async def test_concurrent_batches_can_be_set_while_one_runs():
    recorder = Recorder(step_s=1.0)
    recorder.run.set_max_batch_size(1)
    calls = [asyncio.create_task(recorder.run(number)) for number in range(2)]
    await asyncio.sleep(0.5)
    assert [0.0] == recorder.times
    recorder.run.set_max_concurrent_batches(2)
    await asyncio.gather(*calls)
    assert [0.0, 0.5] == recorder.times


@virtual
async def test_limits_set_before_the_first_call_and_of_one_instance_only():
    one, other = Recorder(), Recorder()
    one.run.set_batch_wait_timeout_s(0.25)
    await asyncio.gather(one.run(1), other.run(1))
    assert ([0.25], [0.1]) == (one.times, other.times)


async def test_limits_may_be_set_from_another_thread():
    recorder = Recorder()
    recorder.run.set_batch_wait_timeout_s(60)
    call = asyncio.create_task(recorder.run(1))
    await asyncio.sleep(0)
    await asyncio.to_thread(recorder.run.set_batch_wait_timeout_s, 0.0)
    assert ("done", 1) == await asyncio.wait_for(call, timeout=30)


@virtual
async def test_a_function_has_the_setters_too():
    sizes = []

    @pyserve.batch(max_batch_size=8, batch_wait_timeout_s=0.1)
    async def function(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    function.set_max_batch_size(2)
    await asyncio.gather(*(function(number) for number in range(4)))
    assert [2, 2] == sizes
    assert {Reason.FULL: 2} == function.stats().reasons


@pytest.mark.parity("S-23")
@virtual
async def test_a_flush_lets_waiting_calls_go_at_once():
    recorder = Recorder()
    call = asyncio.create_task(recorder.run(1))
    await asyncio.sleep(0.01)
    flush(recorder)
    await call
    assert [0.01] == recorder.times
    assert {Reason.FLUSH: 1} == recorder.run.stats().reasons


@pytest.mark.parity("S-23")
@virtual
async def test_a_drain_ends_when_nothing_waits_or_runs():
    recorder = Recorder(step_s=2.0)
    calls = [asyncio.create_task(recorder.run(number)) for number in range(6)]
    await asyncio.sleep(0.01)
    await drain(recorder)
    assert (4.0, True) == (round(now(), 6), all(call.done() for call in calls))
    assert [[0, 1, 2, 3], [4, 5]] == recorder.batches
    await asyncio.wait_for(drain(recorder), timeout=0.001)


# --- models, deadlines, contexts -------------------------------------------------------------


@virtual
async def test_a_batch_is_of_one_model_and_runs_under_it():
    recorder = Recorder()
    models = ["m1", "m2", "m1", "m2"]
    await asyncio.gather(
        *(
            asyncio.create_task(
                under(Request(multiplexed_model_id=model), functools.partial(recorder.run, number))
            )
            for number, model in enumerate(models)
        )
    )
    assert [[0, 2], [1, 3]] == sorted(recorder.batches)
    assert ["m1", "m2"] == sorted(recorder.models)


@virtual
async def test_a_caller_whose_deadline_passed_is_told_and_not_run():
    recorder = Recorder(step_s=1.0)
    recorder.run.set_max_batch_size(1)
    first = asyncio.create_task(recorder.run(1))
    await asyncio.sleep(0)
    late = Request(deadline=asyncio.get_running_loop().time() + 0.5)
    with pytest.raises(RequestTimeout, match=r"Recorder\.run"):
        await asyncio.create_task(under(late, functools.partial(recorder.run, 2)))
    await first
    assert [[1]] == recorder.batches


@virtual
async def test_a_batch_has_a_request_of_its_own_with_the_latest_deadline():
    seen: list[Any] = []

    @pyserve.batch(max_batch_size=2)
    async def look(items: list[int]) -> list[int]:
        seen.append(current_request())
        return items

    base = asyncio.get_running_loop().time()
    members = [Request(deadline=base + seconds) for seconds in (5.0, 9.0)]
    await asyncio.gather(
        *(asyncio.create_task(under(member, lambda: look(1))) for member in members)
    )
    assert seen[0] not in members
    assert seen[0].deadline == base + 9.0
    await asyncio.gather(
        asyncio.create_task(under(members[0], lambda: look(1))),
        asyncio.create_task(under(None, lambda: look(1))),
    )
    assert seen[1].deadline is None


@virtual
async def test_what_was_kept_for_a_batch_is_given_back_after_it():
    """A model that the batch pinned may be evicted once the batch is over, not before."""
    ended = []

    @pyserve.batch(max_batch_size=2)
    async def look(items: list[int]) -> list[int]:
        request = current_request()
        assert request is not None
        request.add_end_callback(lambda: ended.append(now()))
        await asyncio.sleep(1)
        assert [] == ended
        return items

    await asyncio.gather(look(1), look(2))
    await asyncio.sleep(0)
    assert [1.0] == ended


@virtual
async def test_a_run_ends_when_all_its_callers_have_gone():
    """Its task is cancelled, and with its request every call that it made."""
    children, ends = [], []

    class Child:
        is_cancelled = False

        def cancel(self) -> None:
            self.is_cancelled = True

    @pyserve.batch(max_batch_size=3)
    async def slow(items: list[int]) -> list[int]:
        request = current_request()
        assert request is not None
        children.append(Child())
        request.add_child(children[-1])
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(now())
        return items

    calls = [asyncio.create_task(slow(number)) for number in range(3)]
    for index, call in enumerate(calls):
        await asyncio.sleep(1)
        assert (not children[0].is_cancelled, []) == (True, ends), index
        call.cancel()
    await asyncio.wait(calls)
    await asyncio.sleep(0)
    assert ([3.0], True) == (ends, children[0].is_cancelled)
    assert slow.stats().running == 0


@virtual
async def test_cancelling_the_run_itself_cancels_its_callers():
    """So nobody hangs when the loop's tasks are cancelled from outside."""
    recorder = Recorder(step_s=60.0)
    calls = [asyncio.create_task(recorder.run(number)) for number in range(2)]
    await asyncio.sleep(0.2)
    (run,) = [
        task for task in asyncio.all_tasks() if "_main" in getattr(task.get_coro(), "__name__", "")
    ]
    run.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)


# --- sizes and failures ----------------------------------------------------------------------


@virtual
async def test_sizes_are_asked_for_once_per_item():
    asked, batches = [], []

    def tokens(texts: list[str]) -> int:
        asked.append(texts)
        return sum(len(text) for text in texts)

    @pyserve.batch(max_batch_size=6, batch_wait_timeout_s=0.1, batch_size_fn=tokens)
    async def embed(texts: list[str]) -> list[int]:
        batches.append(texts)
        return [len(text) for text in texts]

    results = await asyncio.gather(*(embed(text) for text in ("aaa", "bb", "cccc", "d", "e")))
    assert [3, 2, 4, 1, 1] == results
    assert [["aaa"], ["bb"], ["cccc"], ["d"], ["e"]] == asked
    assert [["aaa", "bb"], ["cccc", "d", "e"]] == batches


@virtual
async def test_several_arguments_are_sized_as_a_tuple():
    asked = []

    def size(items: list[Any]) -> int:
        asked.append(items)
        return 1

    @pyserve.batch(max_batch_size=6, batch_size_fn=size)
    async def add(left: list[int], right: list[int]) -> list[int]:
        return [a + b for a, b in zip(left, right, strict=True)]

    assert 3 == await add(1, right=2)
    assert [[(1, 2)]] == asked


@virtual
async def test_what_goes_wrong_with_a_size_fails_that_caller_only():
    def size(items: list[Any]) -> Any:
        if items[0] == "bad":
            raise KeyError("no size")
        return {"none": None, "huge": 7, "minus": -1}.get(items[0], 1)

    @pyserve.batch(max_batch_size=6, batch_wait_timeout_s=0.1, batch_size_fn=size)
    async def function(items: list[Any]) -> list[Any]:
        return items

    good, bad, none, huge, minus = await asyncio.gather(
        *(function(item) for item in ("good", "bad", "none", "huge", "minus")),
        return_exceptions=True,
    )
    assert good == "good"
    assert isinstance(bad, KeyError)
    assert isinstance(none, OptionError)
    assert isinstance(minus, OptionError)
    assert isinstance(huge, BatchError)
    assert "max_batch_size=6" in str(huge)
    assert huge.code.name == "INVALID_ARGUMENT"


@virtual
async def test_isolation_runs_halves_until_only_the_bad_items_fail():
    batches = []

    @pyserve.batch(max_batch_size=8, isolate_failures=True)
    async def invert(numbers: list[int]) -> list[float]:
        batches.append(numbers)
        return [1 / number for number in numbers]

    results = await asyncio.gather(
        *(invert(number) for number in (1, 2, 0, 4, 5, 8, 0, 10)), return_exceptions=True
    )
    assert [1, 0.5, 0.25, 0.2, 0.125, 0.1] == [r for r in results if isinstance(r, float)]
    assert [2, 6] == [i for i, r in enumerate(results) if isinstance(r, ZeroDivisionError)]
    assert [1, 2] in batches
    assert [5, 8] in batches


@virtual
async def test_isolation_leaves_a_wrong_length_alone():
    runs = []

    @pyserve.batch(max_batch_size=2, isolate_failures=True)
    async def wrong(items: list[int]) -> list[int]:
        runs.append(items)
        return []

    results = await asyncio.gather(wrong(1), wrong(2), return_exceptions=True)
    assert [BatchError, BatchError] == [type(result) for result in results]
    assert [[1, 2]] == runs


@virtual
async def test_isolation_drops_callers_who_left_in_between():
    batches = []

    @pyserve.batch(max_batch_size=2, isolate_failures=True)
    async def fail(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(1)
        raise ValueError(items)

    calls = [asyncio.create_task(fail(number)) for number in range(2)]
    await asyncio.sleep(0.5)
    calls[0].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [asyncio.CancelledError, ValueError] == [type(result) for result in results]
    assert [[0, 1], [1]] == batches


# --- requests of the callers -------------------------------------------------------------------


class Asked:
    """A source that counts how often its request is made."""

    def __init__(self, model_id: str, deadline: float) -> None:
        self.made = 0
        self._request = Request(multiplexed_model_id=model_id, deadline=deadline)

    def model_and_deadline(self) -> tuple[str, float | None]:
        return self._request.model_and_deadline()

    def request(self) -> Request:
        self.made += 1
        return self._request

    def note_cost(self, cost: float) -> None:
        raise AssertionError("nothing here has a cost")


@virtual
async def test_requests_of_callers_are_made_only_where_the_batch_asks_for_its_own():
    @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=1)
    async def run(asks: list[bool]) -> list[float | None]:
        request = current_request() if any(asks) else None
        return [None if request is None else request.deadline] * len(asks)

    sources = [Asked("m", 5000.0), Asked("m", 6000.0)]

    async def call(source: Asked, *, ask: bool) -> Any:
        CURRENT.set(source)
        return await run(ask)

    for ask, deadline in ((False, None), (True, 6000.0)):
        calls = [asyncio.create_task(call(source, ask=ask)) for source in sources]
        assert [deadline, deadline] == await asyncio.gather(*calls)
        assert [int(ask)] * 2 == [source.made for source in sources]
