"""The simulated engine as a deployment: requests in, deltas of their answers out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cached_property

from pyserve.llm.chats import text_of as text_of_chat
from pyserve.llm.deltas import Delta, Timing, Usage
from pyserve.llm.engine import Engine, deployment_name
from pyserve.llm.errors import ContextLengthExceeded, EngineOverloaded, InvalidRequest
from pyserve.llm.models import Load, Model
from pyserve.llm.requests import EmbedRequest, GenerateRequest, ScoreRequest, TokenizeRequest
from pyserve.llm.results import CacheEvent, Embeddings, Scores, Tokens
from pyserve.llm.simulated.answers import Answer, answer_to, wishes_of
from pyserve.llm.simulated.driver import Driver, SimulatedFailure
from pyserve.llm.simulated.language import embedding_of, text_of, tokens_of
from pyserve.llm.simulated.scheduler import Rates, Running, Scheduler

_DIMENSIONS_MAX = 16_384  # More than any model has; arbitrary.


class SimulatedEngine(Engine):
    """Answers with random syllables, at the rates of simulated hardware.

    An answer depends on the prompt and the seed; with temperature 0 only on the prompt. It calls
    a tool if ``tool_choice`` requires it, or if the user has just written a tool's name. A request
    can set the length of its answer, and more, in its field ``simulated``: see ``answers.Wishes``.
    Tokens are two letters with the space after them; see ``language``.

    Args:
        model: Name of the model; ``None``: that of the deployment.
        rates: Of the hardware; ``None``: about those of a large model on one accelerator.
        tokens: Length of an answer, unless the request sets it.
        max_model_len: Tokens of prompt and answer together.
        max_waiting: Requests that may wait for a place; further ones are refused.
        dimensions: Length of embeddings.
        takes_adapters: Requests may name any adapter.
        adapters: The adapters that are always loaded.
    """

    def __init__(
        self,
        *,
        model: str | None = None,
        rates: Rates | None = None,
        tokens: int = 64,
        max_model_len: int = 32_768,
        max_waiting: int = 10_000,
        dimensions: int = 64,
        takes_adapters: bool = False,
        adapters: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._rates = rates or Rates()
        self._tokens = tokens
        self._max_model_len = max_model_len
        self._max_waiting = max_waiting
        self._dimensions = dimensions
        self._takes_adapters = takes_adapters
        self._adapters = tuple(adapters)

    async def models(self) -> list[Model]:
        """Return the one model."""
        return [self._card]

    @cached_property
    def _card(self) -> Model:
        return Model(
            id=self._model or deployment_name(self),
            max_model_len=self._max_model_len,
            takes_adapters=self._takes_adapters,
            adapters=self._adapters,
            tasks=self.tasks(),
        )

    @cached_property
    def _driver(self) -> Driver:
        return Driver(Scheduler(self._rates))

    async def generate(self, request: GenerateRequest) -> AsyncIterator[str | Delta]:
        """Yield an answer at the rates of the hardware."""
        prompt = self._prompt(request)
        wishes = wishes_of(request.extra)
        answer = answer_to(request, prompt, wishes, self._tokens, self._max_model_len)
        self._check_room(len(prompt), len(answer.tokens))
        sequence = Running(prompt, answer.tokens, request.priority)
        driver = self._driver
        driver.begin(sequence)
        taken, whole, streams = 0, len(answer.tokens), request.stream
        try:
            while taken < whole:
                if sequence.made == taken:
                    await driver.grows(sequence)
                made = sequence.made
                if wishes.fail_after is not None and made > wishes.fail_after:
                    raise SimulatedFailure("the request has asked for this failure")
                if not streams and made < whole:
                    await driver.grows(sequence)
                    continue
                if 0 < taken == made - 1 < whole - 1 and answer.texts is not None:
                    yield answer.texts[taken]
                else:
                    for delta in _deltas(sequence, answer, taken, made):
                        yield delta
                taken = made
        finally:
            driver.end(sequence)

    def _prompt(self, request: GenerateRequest | TokenizeRequest) -> list[int]:
        if request.messages:
            return tokens_of(text_of_chat(request.messages))
        if isinstance(request, TokenizeRequest):
            return tokens_of(request.text)
        # The hardware has to have something to compute.
        return request.prompt_token_ids or tokens_of(request.prompt or " ")

    def _check_room(self, prompt: int, answer: int) -> None:
        scheduler = self._driver.scheduler
        if prompt >= self._max_model_len:
            raise ContextLengthExceeded(prompt, self._max_model_len)
        if prompt + answer > self._max_model_len or not scheduler.fits(prompt + answer):
            limit = min(self._max_model_len, scheduler.load().max_tokens)
            raise InvalidRequest(
                f"{prompt} tokens of the prompt and {answer} of the answer are more than the "
                f"{limit} that there is room for",
                "max_tokens",
            )
        if scheduler.waiting >= self._max_waiting:
            raise EngineOverloaded(f"{scheduler.waiting} requests wait for the engine already")

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """Return vectors that are similar for texts that share words."""
        size = request.dimensions or self._dimensions
        if size > _DIMENSIONS_MAX:
            raise InvalidRequest(f"{size} are too many; at most {_DIMENSIONS_MAX}", "dimensions")
        texts = [each if isinstance(each, str) else text_of(each) for each in request.inputs]
        usage = Usage(prompt_tokens=sum(len(tokens_of(text)) for text in texts))
        return Embeddings([embedding_of(text, size) for text in texts], usage)

    async def score(self, request: ScoreRequest) -> Scores:
        """Return how similar the embeddings of queries and documents are."""
        values = []
        for query, document in request.pairs:
            pair = embedding_of(query, self._dimensions), embedding_of(document, self._dimensions)
            values.append(sum(a * b for a, b in zip(*pair, strict=True)))
        tokens = sum(len(tokens_of(query + document)) for query, document in request.pairs)
        return Scores(values, Usage(prompt_tokens=tokens))

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        """Return the tokens of a text, or of a chat as the engine reads it."""
        ids = self._prompt(request)
        strings = [text_of([each]) for each in ids] if request.return_token_strs else []
        return Tokens(ids, self._max_model_len, strings)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        return text_of(token_ids)

    async def load(self) -> Load:
        """Return the load of the scheduler."""
        return self._driver.scheduler.load()

    def cache_events(self) -> AsyncIterator[Sequence[CacheEvent]]:
        """Yield what changes in the prefix cache."""
        return self._driver.cache_events()

    async def aclose(self) -> None:
        """Make no more steps."""
        self._driver.close()


def _deltas(sequence: Running, answer: Answer, taken: int, made: int) -> list[Delta]:
    """Return the deltas of new tokens, with what the first and the last one have besides."""
    deltas = list(answer.between(taken, made))
    if not taken:
        _begin(deltas[0], sequence)
    if made == len(answer.tokens):
        _end(deltas[-1], sequence, answer)
    return deltas


def _begin(delta: Delta, sequence: Running) -> None:
    assert sequence.admitted is not None, "it has tokens"
    assert sequence.began is not None, "it has tokens"
    waited_s = sequence.admitted - sequence.arrived
    delta.timing = Timing(waited_s, sequence.began - sequence.admitted)
    delta.usage = Usage(len(sequence.prompt), sequence.made, sequence.cached)


def _end(delta: Delta, sequence: Running, answer: Answer) -> None:
    delta.finish_reason = answer.finish_reason
    made = len(answer.tokens)
    reasoning = min(made, answer.reasoning_tokens)
    delta.usage = Usage(len(sequence.prompt), made, sequence.cached, reasoning)
