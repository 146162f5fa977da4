"""Completes the deltas that an engine yields, and merges those of the choices of a request.

If the engine omits the end of a choice or the count of its tokens, they are added here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias

from pyserve.llm.deltas import Delta
from pyserve.llm.errors import EngineMistake
from pyserve.llm.v1 import engine_pb2

Yielded: TypeAlias = str | Delta | engine_pb2.Delta
"""What an engine may yield."""

# Between the choices and their caller; arbitrary. Beyond that a choice waits.
_UNREAD_PER_CHOICE = 8
_Message = engine_pb2.Delta


class Completion:
    """Completes the deltas of one call of an engine's generator.

    Args:
        name: Of the generator, for people.
        choices: How many choices it makes.
        prompt_tokens: Of the prompt, where that is known.
    """

    def __init__(self, name: str, choices: int = 1, prompt_tokens: int = 0) -> None:
        self.name = name
        self._choices = choices
        self._prompt_tokens = prompt_tokens
        self._tokens = 0
        self._has_usage = False
        self._finished: set[int] = set()
        self._calling: set[int] = set()  # Choices that have called tools.

    def take(self, item: Yielded) -> engine_pb2.Delta:
        """Return what was yielded, for the wire.

        Raises:
            EngineMistake: It is something else.
            ValueError: Something in it is out of range.
        """
        kind = type(item)
        if kind is str:
            self._tokens += 1
            message = _Message()
            message.text = item  # type: ignore[assignment]
            return message
        if kind is Delta:
            self._note(item)
            self._has_usage = self._has_usage or item.usage is not None  # type: ignore[union-attr]
            return item.message()  # type: ignore[union-attr]
        if kind is not _Message:
            raise EngineMistake(
                f"{self.name} yielded {item!r:.60}; yield a str, a pyserve.llm.Delta, or the "
                f"generated message"
            )
        self._note(item)
        self._has_usage = self._has_usage or item.HasField("usage")  # type: ignore[union-attr]
        return item  # type: ignore[return-value]

    def _note(self, item: Any) -> None:
        """Note what both kinds have under the same names."""
        if item.text or item.token_ids or item.reasoning or item.tool_calls or item.text_bytes:
            self._tokens += len(item.token_ids) or 1
        if item.tool_calls:
            self._calling.add(item.index)
        if item.finish_reason:
            self._finished.add(item.index)

    def end(self) -> Iterable[engine_pb2.Delta]:
        """Return what the generator has left out."""
        missing = [
            self._end_of(index) for index in range(self._choices) if index not in self._finished
        ]
        if not self._has_usage:
            if not missing:
                missing.append(_Message())
            missing[-1].usage.prompt_tokens = self._prompt_tokens
            missing[-1].usage.completion_tokens = self._tokens
        return missing

    def _end_of(self, index: int) -> engine_pb2.Delta:
        by_tools = index in self._calling
        reason = engine_pb2.FINISH_REASON_TOOL_CALLS if by_tools else engine_pb2.FINISH_REASON_STOP
        return _Message(index=index, finish_reason=reason)


async def completed(
    generator: AsyncIterator[Yielded], completion: Completion
) -> AsyncGenerator[engine_pb2.Delta, None]:
    """Yield the completed deltas of a generator; closing this closes it."""
    take = completion.take
    try:
        async for item in generator:
            yield take(item)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # To the client it would look as if it had gone itself.
        raise EngineMistake(
            f"{completion.name} was cancelled, and its call was not: what it waited for was"
        ) from error
    finally:
        await close(generator)
    for message in completion.end():
        yield message


async def close(iterator: Any) -> None:
    """Close an asynchronous generator; other iterators have nothing to close."""
    aclose = getattr(iterator, "aclose", None)
    if aclose is not None:
        await aclose()


class Totals:
    """Adds up the usage of the choices of a request.

    Args:
        n: Choices for each prompt. The tokens of a prompt count once.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._usages: dict[int, engine_pb2.Usage] = {}

    def take(self, index: int, usage: engine_pb2.Usage) -> engine_pb2.Usage:
        """Return the usage of all choices, with a new one of the choice ``index``."""
        self._usages[index] = usage
        total = engine_pb2.Usage()
        prompts: dict[int, engine_pb2.Usage] = {}
        for each, found in self._usages.items():
            total.completion_tokens += found.completion_tokens
            total.reasoning_tokens += found.reasoning_tokens
            # Other choices find the prompt in the cache because the first has brought it there.
            known = prompts.setdefault(each // self._n, found)
            if found.cached_tokens < known.cached_tokens or not known.prompt_tokens:
                prompts[each // self._n] = found
        for found in prompts.values():
            total.prompt_tokens += found.prompt_tokens
            total.cached_tokens += found.cached_tokens
        return total


async def merged(
    choices: list[AsyncGenerator[engine_pb2.Delta, None]], n: int
) -> AsyncGenerator[engine_pb2.Delta, None]:
    """Run the generators of a request's choices at once, and yield what they yield.

    The first error ends all of them. They have ended when this one has.

    Args:
        choices: By index; each for one choice, which it calls 0.
        n: Choices for each prompt.
    """
    totals = Totals(n)
    unread = _UNREAD_PER_CHOICE * len(choices)
    queue: asyncio.Queue[engine_pb2.Delta | BaseException | None] = asyncio.Queue(unread)
    tasks = [
        asyncio.create_task(_pass_on(index, each, queue)) for index, each in enumerate(choices)
    ]
    running = len(tasks)
    try:
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                if item.HasField("usage"):
                    item.usage.CopyFrom(totals.take(item.index, _copy(item.usage)))
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _copy(usage: engine_pb2.Usage) -> engine_pb2.Usage:
    found = engine_pb2.Usage()
    found.CopyFrom(usage)
    return found


async def _pass_on(
    index: int,
    choice: AsyncGenerator[engine_pb2.Delta, None],
    queue: asyncio.Queue[engine_pb2.Delta | BaseException | None],
) -> None:
    try:
        async with aclosing(choice):
            async for message in choice:
                message.index = index
                await queue.put(message)
    except BaseException as error:
        # Whatever an engine raises: a choice without an end would leave its caller waiting.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        await queue.put(error)
    else:
        await queue.put(None)
