"""What batches and models did becomes metrics of their replica."""

import asyncio
import gc
from typing import Any

import pytest

import pyserve
from pyserve.observe.metrics import MODELS, ProcessMetrics, Scrape, Tally
from pyserve.replica.measures import (
    ReplicaMetrics,
    add_batches,
    add_methods,
    add_models,
    add_steps,
)
from pyserve.stepping import decorator


def _letters(items: list[str]) -> float:
    return sum(map(len, items))


class Found:
    """Samples by family, with the labels that are asked for."""

    def __init__(self, *sources) -> None:
        scrape = Scrape({"replica": "A#1"})
        for source in sources:
            source(scrape)
        self.families = {each.name: each for each in scrape.families()}

    def value(self, name: str, suffix: str = "", **labels: str) -> float:
        return sum(
            each.value
            for each in self.families[name].samples
            if each.suffix == suffix and labels.items() <= each.labels.items()
        )


@pytest.fixture(autouse=True)
def alone() -> None:
    gc.collect()  # Queues and caches of other tests.


async def test_batches_are_measured_once_each():
    class Model:
        @pyserve.batch(max_batch_size=4, batch_wait_timeout_s=10)
        async def run(self, items: list[int]) -> list[int]:
            if -1 in items:
                raise ValueError("one is below zero")
            return items

    model, where = Model(), {"function": f"{Model.__qualname__}.run"}
    await asyncio.gather(*map(model.run, range(8)))
    with pytest.raises(ValueError, match="below zero"):
        await asyncio.gather(*map(model.run, (-1, 1, 2, 3)))
    found = Found(add_batches)

    assert 3 == found.value("pyserve_batch_size", "_count", **where)
    assert 12 == found.value("pyserve_batch_size", "_sum", **where)
    assert 4 == found.value("pyserve_batch_size_max", **where)
    assert 3 == found.value("pyserve_batches", "_total", reason="full", **where)
    assert 1 == found.value("pyserve_batches_failed", "_total", **where)
    for name in ("pyserve_batch_wait_seconds", "pyserve_batch_execution_seconds"):
        assert 3 == found.value(name, "_count", **where)
    assert 0 == found.value("pyserve_batch_waiting_calls", **where)


async def test_steps_and_values_are_measured():
    @pyserve.continuous(max_running=2, budget=10)
    class Model:
        def admit(self, request: int) -> list[int]:
            return [request]

        def step(self, states: list[list[int]]) -> list[pyserve.Emit]:
            for state in states:
                state[0] -= 1
            return [pyserve.Emit(1) if state[0] else pyserve.Done(0) for state in states]

    model: Any = Model()
    where = {"function": Model.__qualname__}
    try:
        assert [1, 1, 0] == [value async for value in model(3)]
        assert 0 == await model(1)  # A caller of the last value alone is not measured.
        found = Found(add_steps)
    finally:
        await decorator.close(model)

    assert 4 == found.value("pyserve_steps", "_total", **where)
    assert 4 == found.value("pyserve_step_size", "_sum", **where)
    assert 4 == found.value("pyserve_step_seconds", "_count", **where)
    assert 1 == found.value("pyserve_step_first_value_seconds", "_count", **where)
    assert 2 == found.value("pyserve_step_value_seconds", "_count", **where)
    assert 2 == found.value("pyserve_step_admissions", "_total", **where)
    assert 10 == found.value("pyserve_step_budget_max", **where)
    for name in ("running_requests", "parked_requests", "waiting_requests", "budget_used"):
        assert 0 == found.value(f"pyserve_step_{name}", **where)


async def test_the_wait_of_a_batch_is_that_of_its_oldest_call():
    class Model:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10)
        async def run(self, items: list[int]) -> list[int]:
            return items

    model = Model()
    first = asyncio.ensure_future(model.run(1))
    # The time itself is what is measured here: it has to pass.
    await asyncio.sleep(0.05)
    await asyncio.gather(first, model.run(2))

    where = {"function": f"{Model.__qualname__}.run"}
    assert 0.045 <= Found(add_batches).value("pyserve_batch_wait_seconds", "_sum", **where) < 5


async def test_calls_without_a_batch_are_counted_by_why():
    class Model:
        @pyserve.batch(max_batch_size=2, batch_wait_timeout_s=10, batch_size_fn=_letters)
        async def run(self, items: list[str]) -> list[str]:
            return items

    model = Model()
    with pytest.raises(pyserve.PyserveError):
        await model.run("too long")
    gone = asyncio.ensure_future(model.run("a"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    await asyncio.gather(model.run("b"), model.run("c"))
    found = Found(add_batches)

    name, where = "pyserve_batch_dropped_calls", {"function": f"{Model.__qualname__}.run"}
    assert 1 == found.value(name, "_total", reason="oversized", **where)
    assert 1 == found.value(name, "_total", reason="cancelled", **where)


@pytest.mark.parity("S-33")
async def test_models_are_hits_misses_loads_and_evictions():
    class Model:
        @pyserve.multiplexed(max_num_models_per_replica=2)
        async def get(self, model_id: str) -> str:
            if model_id == "broken":
                raise ValueError(model_id)
            return model_id

    model, where = Model(), {"function": f"{Model.__qualname__}.get"}
    for model_id in "aabac":  # "b" goes for "c": it was used longest ago.
        await model.get(model_id)
    with pytest.raises(ValueError, match="broken"):
        await model.get("broken")
    found = Found(add_models)

    requests = "pyserve_model_requests"
    assert 2 == found.value(requests, "_total", result="hit", **where)
    assert 4 == found.value(requests, "_total", result="miss", **where)
    loads = "pyserve_model_loads"
    assert 3 == found.value(loads, "_total", outcome="loaded", **where)
    assert 1 == found.value(loads, "_total", outcome="failed", **where)
    assert 3 == found.value("pyserve_model_load_seconds", "_count", **where)
    assert found.value("pyserve_model_evictions", "_total", **where) >= 1
    assert 1 <= found.value("pyserve_model_unload_seconds", "_count", **where)
    assert found.value("pyserve_models_loaded", **where) <= 2
    assert 2 == found.value("pyserve_models_max", **where)


async def test_each_model_is_told_by_itself():
    class Model:
        @pyserve.multiplexed(max_num_models_per_replica=2)
        async def get(self, model_id: str) -> str:
            return model_id

    model = Model()
    for model_id in "aabaca":  # "b" goes for "c".
        await model.get(model_id)
    where = {"function": f"{Model.__qualname__}.get"}
    found = Found(add_models)

    names = {each.labels["model"] for each in found.families[MODELS].samples}
    assert {"a", "c"} == names
    counts = ("hits", "misses", "loads", "evictions")
    told = {
        name: [found.value(MODELS, f"_{each}", model=name, **where) for each in counts]
        for name in names
    }
    assert {"a": [3, 1, 1, 0], "c": [0, 1, 1, 0]} == told
    await model.get("b")  # "c" goes.
    again = Found(add_models)
    assert [0, 2, 2, 1] == [again.value(MODELS, f"_{each}", model="b", **where) for each in counts]


@pytest.mark.parity("S-35")
@pytest.mark.parametrize(("order", "reloads"), [("abcabc", 3), ("aabbcc", 0)])
async def test_models_that_chase_each_other_are_noticed(order: str, reloads: int):
    """With room for two, three models by turns are reloaded each time; in a row they are not."""

    class Model:
        @pyserve.multiplexed(max_num_models_per_replica=2)
        async def get(self, model_id: str) -> str:
            return model_id

    model = Model()
    for model_id in order:
        await model.get(model_id)

    where = {"function": f"{Model.__qualname__}.get"}
    assert reloads == Found(add_models).value("pyserve_model_reloads", "_total", **where)


def test_methods_are_told_by_how_calls_ended():
    latency = {"buckets": [0.5, 1.0], "counts": [1, 2, 3], "sum": 7.5}
    measured = {
        "codes": {0: 3, 14: 2, 99: 1},
        "http": {"2xx": 4},
        "left": 5,
        "latency": latency,
        "request_bytes": 10,
        "response_bytes": 20,
    }
    found = Found(lambda scrape: add_methods(scrape, {"/a.B/C": measured}))

    name = "pyserve_replica_ended_calls"
    ends = {each.labels["code"]: each.value for each in found.families[name].samples}
    assert {"OK": 3, "UNAVAILABLE": 2, "UNKNOWN": 1, "2xx": 4, "left": 5} == ends
    buckets = [
        each.value
        for each in found.families["pyserve_replica_call_seconds"].samples
        if each.suffix == "_bucket"
    ]
    assert [1, 3, 6] == buckets
    assert 20 == found.value("pyserve_replica_response_bytes", "_total", method="/a.B/C")


def test_calls_of_the_mesh_itself_are_in_no_metric_of_calls():
    """``pyserve explain`` asks replicas; and a counter never falls."""
    native = {"calls": 3, "in_flight": 1, "refused": 0, "connections": 1}
    native |= {"cache_keys": 2, "cache_dropped": 1}
    native |= dict.fromkeys(("cancelled_by_client", "deadlines_exceeded", "shut_down"), 0)
    measured = {
        "codes": {0: 2},
        "http": {},
        "left": 0,
        "latency": {"buckets": [1.0], "counts": [2, 0], "sum": 0.5},
        "request_bytes": 1,
        "response_bytes": 1,
    }
    measures = {"/a.B/C": measured}
    metrics = ProcessMetrics("replica")
    ReplicaMetrics(metrics).serve(
        counts=lambda: native,
        measures=lambda: measures,
        limit=lambda: 5,
        loop_counts=lambda: {"events": 0, "wakeups": 0, "queue_length_max": 0},
        stalls=None,
    )

    def told() -> tuple[float, set[str]]:
        families = {each.name: each for each in metrics.collect()}
        (calls,) = families["pyserve_replica_calls"].samples
        ended = families["pyserve_replica_ended_calls"].samples
        return calls.value, {each.labels["method"] for each in ended}

    # The third is a question that has not been answered yet.
    before = told()
    measures["/pyserve.delays/Of"] = {**measured, "codes": {0: 1}}
    answered = told()
    native["calls"] = 5
    assert [(3, {"/a.B/C"}), (3, {"/a.B/C"}), (4, {"/a.B/C"})] == [before, answered, told()]


def test_a_tally_costs_little():
    """One search in a tuple and two additions: no object is made that outlives the call."""
    tally = Tally()
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1000):
        tally.add(number / 1e5)
    assert len(gc.get_objects()) <= before + 10
