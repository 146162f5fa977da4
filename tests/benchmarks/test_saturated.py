"""The benchmark of a saturated batcher: its targets, the batcher by hand, a short run."""

import asyncio
import json

import pytest

from benchmarks import batched, saturated
from services.echo import echo_pb2


def test_both_targets_are_named_where_they_are_missed():
    assert not saturated.failures(0.985, 0.25, [])
    missed = saturated.failures(0.98, 0.26, [])
    assert [
        "98.0% of what the steps allow",
        "0.260 of the CPU a call of the batcher by hand",
    ] == [text.removeprefix("saturated: ").partition(";")[0] for text in missed]
    assert 1 == len(saturated.failures(1.0, 0.1, [{"x": 1}]))


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


@pytest.mark.slow
def test_a_short_run_keeps_the_other_results(program, tmp_path):
    out = tmp_path / "batching.json"
    out.write_text('{"rows": []}', encoding="utf-8")
    saturated.main(["--pairs", "1", "--seconds", "0.5", "--out", str(out)])
    document = json.loads(out.read_text(encoding="utf-8"))
    assert [] == document["rows"]
    assert [] == document["saturated"]["errors"]
    assert 0 < document["saturated"]["share_of_bound"]["batched mesh"]["median"]
    assert 0 < document["saturated"]["steps_alone_answers_per_s"]["median"] < 3200
