"""The benchmark of a saturated batcher: its targets, the batcher by hand, a short run."""

import asyncio
import json

import pytest

from benchmarks import batched, saturated
from services.echo import echo_pb2


def test_targets_are_named_where_they_are_missed():
    assert not saturated.failures(0.985, 0.25, 0.15, [])
    missed = saturated.failures(0.98, 0.26, 0.151, [])
    assert [
        "98.0% of what the steps allow",
        "0.260 of the CPU a call of the batcher by hand",
        "0.151 ms between two steps",
    ] == [text.removeprefix("saturated: ").partition(";")[0] for text in missed]
    assert 1 == len(saturated.failures(1.0, 0.1, 0.1, [{"x": 1}]))


async def test_the_batcher_by_hand_answers_each_caller(monkeypatch: pytest.MonkeyPatch):
    sizes = []

    async def step(requests):
        sizes.append(len(requests))
        return [echo_pb2.EchoReply(payload=request.payload) for request in requests]

    monkeypatch.setattr(batched, "step", step)
    plain = batched.Plain()
    payloads = [bytes([number]) for number in range(batched.SIZE_MAX + 1)]
    replies = await asyncio.gather(
        *(plain.Echo(echo_pb2.EchoRequest(payload=payload), None) for payload in payloads)  # type: ignore[arg-type]
    )
    assert payloads == [reply.payload for reply in replies]
    assert [batched.SIZE_MAX, 1] == sizes


async def test_what_passes_between_steps_is_told_once(monkeypatch: pytest.MonkeyPatch):
    clock = iter([1.0, 1.25, 3.0, 3.5, 9.0])
    monkeypatch.setattr(batched.time, "perf_counter", lambda: next(clock))
    between = batched.Between()
    for _ in range(3):
        between.begin()
        between.end()
    assert {"between_ms": 375.0, "steps": 2} == json.loads(between.report())
    assert {"between_ms": 0.0, "steps": 0} == json.loads(between.report())


@pytest.mark.slow
def test_a_short_run_keeps_the_other_results(program, tmp_path):
    out = tmp_path / "batching.json"
    out.write_text('{"rows": []}', encoding="utf-8")
    saturated.main(["--pairs", "1", "--seconds", "0.5", "--out", str(out)])
    document = json.loads(out.read_text(encoding="utf-8"))
    assert [] == document["rows"]
    assert [] == document["saturated"]["errors"]
    assert 0 < document["saturated"]["share_of_bound"]["batched mesh"]["median"]
    assert 0 < document["saturated"]["between_steps_ms"]["batched grpc.aio"]["median"]
    # Timers count whole milliseconds: over half a second one of them is two in a thousand.
    assert 0 < document["saturated"]["steps_alone_answers_per_s"]["median"] < 3250
