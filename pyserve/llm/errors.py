"""Exceptions that an engine raises if a request is wrong, or if it is full.

Any other exception is a failure of the engine: its log has the traceback, and the caller gets a
neutral message.
"""

from __future__ import annotations

from typing import ClassVar

from grpc import StatusCode

from pyserve.errors import Abort, KindError


class InvalidRequest(Abort):
    """A request is wrong: ``INVALID_ARGUMENT``, over HTTP 400.

    Args:
        message: What is wrong, and what to send instead.
        param: The field of the request that is wrong, such as ``messages[1].content``.
    """

    status: ClassVar[StatusCode] = StatusCode.INVALID_ARGUMENT
    """The status that gRPC clients get."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(self.status, f"{param}: {message}" if param else message)
        self.param = param


class ContextLengthExceeded(InvalidRequest):
    """A prompt, or a prompt with its completion, is longer than the model's context.

    It is ``OUT_OF_RANGE``; over HTTP it is 400 with the code ``context_length_exceeded``, which
    tells clients of OpenAI's API to shorten the conversation.

    Args:
        tokens: The number of tokens of the prompt.
        limit: The model's maximum context length, in tokens.
    """

    status = StatusCode.OUT_OF_RANGE

    def __init__(self, tokens: int, limit: int) -> None:
        # Frameworks recognise this error by the wording of OpenAI's API, or of Anthropic's.
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
