"""What an engine raises where the fault is the request's, or the engine is full.

Anything else that an engine raises is its own failure: its log has the traceback, and the caller
gets a neutral text.
"""

from __future__ import annotations

from typing import ClassVar

from grpc import StatusCode

from pyserve.errors import Abort, KindError


class InvalidRequest(Abort):
    """A request cannot be carried out as it is: ``INVALID_ARGUMENT``, by HTTP 400.

    Args:
        message: What is wrong, and what to send instead.
        param: The field of the request that is meant, such as ``messages[1].content``.
    """

    status: ClassVar[StatusCode] = StatusCode.INVALID_ARGUMENT
    """What a client of gRPC is answered with."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(self.status, f"{param}: {message}" if param else message)
        self.param = param


class ContextLengthExceeded(InvalidRequest):
    """A prompt, or a prompt with its completion, is longer than the model's context.

    It is ``OUT_OF_RANGE``; by HTTP it is 400 with the code ``context_length_exceeded``, by which
    clients of OpenAI's API know that they have to shorten the conversation.

    Args:
        tokens: How many it has.
        limit: How many the model takes.
    """

    status = StatusCode.OUT_OF_RANGE

    def __init__(self, tokens: int, limit: int) -> None:
        # Frameworks know this error by the wording of OpenAI's API, or of Anthropic's.
        super().__init__(
            f"the prompt is too long: it has {tokens} tokens, and this model's maximum context "
            f"length is {limit} tokens with the completion; shorten the prompt"
        )
        self.tokens = tokens
        self.limit = limit


class ModelNotFound(Abort):
    """The engine has no such model or adapter: ``NOT_FOUND``, by HTTP 404.

    Args:
        model: The name that was asked for.
        known: The names that there are.
    """

    def __init__(self, model: str, known: tuple[str, ...] = ()) -> None:
        there_are = f"; there is {', '.join(known)}" if known else ""
        super().__init__(StatusCode.NOT_FOUND, f"the model {model!r} does not exist{there_are}")


class EngineOverloaded(Abort):
    """The engine takes no more requests now: ``RESOURCE_EXHAUSTED``, by HTTP 429.

    Args:
        message: What is full.
        retry_after_s: When to try again.
    """

    retryable = True

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        metadata = (("retry-after", str(retry_after_s)),)
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, message, metadata)


class EngineMistake(KindError):
    """An engine has yielded or returned what it may not; to callers, ``INTERNAL``."""

    code = StatusCode.INTERNAL
