"""Deltas of choices: completed where an engine leaves something out, and merged."""

from __future__ import annotations

import asyncio

import pytest

from pyserve.errors import KindError
from pyserve.llm import Delta, Timing, ToolCall, Usage
from pyserve.llm.choices import Completion, completed, merged
from pyserve.llm.v1 import engine_pb2 as pb

STOP, LENGTH, TOOL_CALLS = 1, 2, 3


async def _yielding(*items):
    for item in items:
        await asyncio.sleep(0)
        yield item


async def _all(stream):
    return [each async for each in stream]


def _usage(found):
    return (found.prompt_tokens, found.completion_tokens, found.cached_tokens)


async def test_text_gets_an_end_and_a_count():
    found = await _all(completed(_yielding("a", "b", Delta("c")), Completion("g", prompt_tokens=4)))
    assert ["a", "b", "c", ""] == [each.text for each in found]
    assert [0, 0, 0, STOP] == [each.finish_reason for each in found]
    assert (4, 3, 0) == _usage(found[-1].usage)


async def test_what_the_engine_says_stays():
    last = Delta("b", finish_reason="length", usage=Usage(9, 8, 7), token_ids=[1, 2])
    found = await _all(completed(_yielding("a", last), Completion("g")))
    assert [0, LENGTH] == [each.finish_reason for each in found]
    assert (9, 8, 7) == _usage(found[-1].usage)


async def test_tokens_are_counted_by_their_ids_where_they_have_some():
    found = await _all(completed(_yielding(Delta("ab", token_ids=[1, 2, 3])), Completion("g")))
    assert 3 == found[-1].usage.completion_tokens


async def test_a_count_follows_an_end_that_has_none():
    found = await _all(completed(_yielding(Delta("a", finish_reason="stop")), Completion("g")))
    assert [STOP, 0] == [each.finish_reason for each in found]
    assert found[-1].HasField("usage")


async def test_a_choice_that_called_tools_ends_so():
    calls = Delta(tool_calls=[ToolCall(0, "c", "f", "{}")])
    found = await _all(completed(_yielding(calls), Completion("g")))
    assert TOOL_CALLS == found[-1].finish_reason


async def test_each_choice_that_was_not_ended_is_ended():
    items = [Delta("a", index=1, finish_reason="stop"), Delta("b", index=0)]
    found = await _all(completed(_yielding(*items), Completion("g", choices=3)))
    ends = sorted((each.index, each.finish_reason) for each in found if each.finish_reason)
    assert [(0, STOP), (1, STOP), (2, STOP)] == ends


async def test_the_generated_message_passes_as_it_is():
    message = pb.Delta(text="x", index=0)
    found = await _all(completed(_yielding(message), Completion("g")))
    assert found[0] is message


@pytest.mark.parametrize("item", [None, 3, b"bytes", {"text": "x"}])
async def test_anything_else_is_refused_with_what_to_yield(item):
    with pytest.raises(KindError, match=r"Parrot\.generate yielded .*; yield a str"):
        await _all(completed(_yielding(item), Completion("Parrot.generate")))


async def test_an_unknown_finish_reason_is_refused():
    with pytest.raises(ValueError, match="use one of stop, length"):
        await _all(completed(_yielding(Delta(finish_reason="eos")), Completion("g")))  # type: ignore[arg-type]


def test_a_delta_has_all_of_its_parts_on_the_wire():
    message = Delta(
        "t",
        index=2,
        reasoning="r",
        refusal="no",
        stop_sequence="###",
        timing=Timing(0.5, 0.25),
        tool_calls=[ToolCall(1, "id", "name", "{")],
    ).message()
    assert ("t", 2, "r", "no", "###") == (
        message.text,
        message.index,
        message.reasoning,
        message.refusal,
        message.stop_sequence,
    )
    assert (0.5, 0.25) == (message.timing.waited_s, message.timing.prefill_s)
    assert (1, "id", "name", "{") == (
        message.tool_calls[0].index,
        message.tool_calls[0].id,
        message.tool_calls[0].name,
        message.tool_calls[0].arguments,
    )


async def test_merged_choices_have_their_indexes_and_add_up():
    choices = [
        completed(_yielding("a", Delta("b", usage=Usage(5, 2, cached))), Completion("g"))
        for cached in (0, 4, 0, 4)
    ]
    found = await _all(merged(choices, n=2))
    texts = {
        index: "".join(each.text for each in found if each.index == index) for index in range(4)
    }
    assert dict.fromkeys(range(4), "ab") == texts
    assert [0, 1, 2, 3] == sorted(each.index for each in found if each.finish_reason)
    # Two prompts of 5 tokens, which nobody had found in the cache before this request.
    last = [each.usage for each in found if each.HasField("usage")][-1]
    assert (10, 8, 0) == _usage(last)


async def test_an_error_of_one_choice_ends_all():
    closed = []

    async def forever():
        try:
            while True:
                await asyncio.sleep(0)
                yield "x"
        finally:
            closed.append(True)

    async def failing():
        yield "y"
        raise ValueError("broken")

    choices = [completed(each, Completion("g")) for each in (forever(), failing(), forever())]
    with pytest.raises(ValueError, match="broken"):
        await _all(merged(choices, n=1))
    assert [True, True] == closed


async def test_closing_the_merged_stream_closes_every_choice():
    closed = []

    async def waiting():
        try:
            yield "x"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    stream = merged([completed(waiting(), Completion("g")) for _ in range(3)], n=3)
    assert "x" == (await anext(stream)).text
    await asyncio.sleep(0)
    await stream.aclose()
    assert [True] * 3 == closed


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, GeneratorExit, SystemExit, KeyboardInterrupt, BaseException]
)
async def test_a_choice_that_ends_by_any_exception_ends_all(error):
    async def broken():
        yield Delta("a").message()
        raise error

    stream = merged([completed(_yielding("b"), Completion("g")), broken()], 2)
    ended = None
    try:
        async with asyncio.timeout(10):
            await _all(stream)
    except BaseException as found:
        ended = found
    assert type(ended) is error


async def test_a_generator_that_is_cancelled_from_inside_has_made_a_mistake():
    async def broken():
        yield "a"
        waited_for = asyncio.create_task(asyncio.sleep(60))
        waited_for.cancel()
        await waited_for

    with pytest.raises(KindError, match=r"g was cancelled, and its call was not"):
        await _all(completed(broken(), Completion("g")))


async def test_a_call_that_is_cancelled_cancels_its_generator():
    seen = []

    async def waiting():
        yield "a"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    call = asyncio.create_task(_all(completed(waiting(), Completion("g"))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert seen == ["cancelled"]
