"""The character transformer: its gradient, its cache, and batched generation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import grpc
import numpy as np
import pytest

import pyserve
from pyserve.stepping.decorator import options_of
from pyserve.testing import Arrival, drive
from services.letters import letters_pb2
from services.letters.model import MODEL_PATH, Floats, Transformer, sample, weight_names
from services.letters.service import CHUNK, Letters
from services.letters.train import ALPHABET, Adam, guide_text, loss_and_gradient, untrained

_PROSE = (
    "a replica that has no free place refuses the call, and the router sends it to another one."
)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer.load()


def tiny(alphabet: str = "abcde", seed: int = 1) -> Transformer:
    """Return a small model with large random weights."""
    rng = np.random.default_rng(seed)
    made = untrained(alphabet, seed, width=8, hidden=12, layers=2)
    noisy = {
        name: getattr(made, name) + rng.normal(0.0, 0.4, getattr(made, name).shape)
        for name in weight_names()
    }
    return dataclasses.replace(made, **noisy)


def without_cache(model: Transformer, tokens: list[int]) -> Floats:
    """Return log probabilities of the next token, computed without a cache."""
    logs: Floats = model.extend([(model.new_cache(), tokens)])[0]
    return logs


def alone(model: Transformer, request: letters_pb2.GenerateRequest) -> str:
    """Generate without a cache and without other requests."""
    tokens = model.encode(request.prompt.lower())
    rng = np.random.default_rng(request.seed)
    for _ in range(request.max_tokens):
        tokens.append(sample(without_cache(model, tokens), request.temperature, rng))
    return model.decode(tokens[len(request.prompt) :])


def instance() -> Any:
    return Letters.func_or_class()


def options(**changed: Any) -> Any:
    return dataclasses.replace(options_of(Letters.func_or_class), **changed)


def request(prompt: str, count: int, seed: int = 0, temperature: float = 0.8) -> Any:
    return letters_pb2.GenerateRequest(
        prompt=prompt, max_tokens=count, seed=seed, temperature=temperature
    )


def mixed_requests() -> list[Any]:
    """Return long and short requests, greedy and sampled ones."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(12):
        begin, length = rng.integers(0, 40), rng.integers(1, 90)
        prompt = (_PROSE * 2)[begin : begin + length]
        found.append(request(prompt, int(rng.integers(1, 40)), number, (0.0, 0.7)[number % 2]))
    return found


def texts(driven: Any) -> list[str]:
    return ["".join(piece.text for piece in values) for values in driven.values]


class TestModel:
    def test_the_gradient_agrees_with_finite_differences(self) -> None:
        model = tiny()
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, 5, (3, 8))
        _, gradient = loss_and_gradient(model, tokens)
        for name in weight_names():
            weights = getattr(model, name)
            # Later positions do not occur in the tokens.
            shape = (7, weights.shape[1]) if name == "position_embedding" else weights.shape
            for _ in range(3):
                place = tuple(rng.integers(0, size) for size in shape)
                kept, losses = weights[place], []
                for change in (1e-6, -1e-6):
                    weights[place] = kept + change
                    losses.append(loss_and_gradient(model, tokens)[0])
                weights[place] = kept
                slope = (losses[0] - losses[1]) / 2e-6
                assert slope == pytest.approx(gradient[name][place], rel=1e-4, abs=1e-8), name

    def test_training_lowers_the_loss(self) -> None:
        optimiser = Adam(untrained("abc", 0, width=16, hidden=16, layers=1))
        tokens = np.array([optimiser.model.encode("abcabcabcabcabcabc")] * 2)
        losses = [optimiser.step(tokens, 1e-2) for _ in range(60)]
        assert losses[0] > 1.0
        assert losses[-1] < 0.1

    @pytest.mark.parametrize("chunk", [1, 3, 200])
    def test_the_cache_changes_no_prediction(self, model: Transformer, chunk: int) -> None:
        tokens = model.encode(_PROSE)
        cache = model.new_cache()
        for begin in range(0, len(tokens), chunk):
            logs = model.extend([(cache, tokens[begin : begin + chunk])])
        assert cache.length == len(tokens)
        np.testing.assert_allclose(logs[0], without_cache(model, tokens), atol=1e-10)

    def test_a_prediction_depends_on_distant_tokens(self, model: Transformer) -> None:
        tokens = model.encode(_PROSE)
        changed = [*model.encode("z" * 40), *tokens[40:]]
        difference = without_cache(model, tokens) - without_cache(model, changed)
        assert np.abs(difference).max() > 1e-3

    def test_english_is_more_probable_than_the_same_letters_shuffled(
        self, model: Transformer
    ) -> None:
        def bits(text: str) -> float:
            loss, _ = loss_and_gradient(model, np.array([model.encode(text)]))
            return loss / math.log(2)

        letters = list(_PROSE)
        np.random.default_rng(0).shuffle(letters)
        assert bits(_PROSE) < 3.0
        assert bits(_PROSE) < bits("".join(letters)) - 1.0

    def test_the_file_is_small_and_has_the_alphabet_of_the_training_text(self) -> None:
        assert MODEL_PATH.stat().st_size <= 200_000
        assert Transformer.load().alphabet == ALPHABET
        assert set(guide_text()) <= set(ALPHABET)


class TestGeneration:
    @pytest.mark.slow
    @pytest.mark.parametrize("max_running", [1, 5, 12])
    def test_batching_changes_no_token(self, model: Transformer, max_running: int) -> None:
        requests = mixed_requests()
        driven = drive(instance(), requests, options=options(max_running=max_running))
        assert texts(driven) == [alone(model, each) for each in requests]
        assert max(len(step.requests) for step in driven.steps) == max_running

    @pytest.mark.slow
    @pytest.mark.parametrize("reserve", ["now", "bound"])
    def test_preempted_requests_resume_by_recomputation(
        self, model: Transformer, reserve: Any
    ) -> None:
        requests = mixed_requests()
        resumed: list[int] = []

        made: Any = Letters.func_or_class

        class Counted(made):  # type: ignore[misc]  # decorators return what mypy does not see
            def resume(self, snapshot: Any) -> Any:
                resumed.append(len(snapshot.tokens) - len(snapshot.request.prompt))
                return super().resume(snapshot)

        driven = drive(
            Counted(), requests, options=options(budget=135, reserve=reserve, max_preempts=50)
        )
        assert texts(driven) == [alone(model, each) for each in requests]
        assert bool(resumed) is (reserve == "now")
        if resumed:
            assert max(resumed) > 0, "some were preempted after the prefill"

    def test_a_long_prompt_takes_several_steps_and_delays_nobody(self) -> None:
        long = request(_PROSE + _PROSE, 2)
        short = request("a", 10)
        driven = drive(instance(), [short, long], step_s=1.0)
        chunks = -(-len(long.prompt) // CHUNK)
        assert driven.outcomes[1].first_s == chunks
        assert driven.outcomes[0].first_s == 1
        assert driven.outcomes[0].ended_s == 10

    def test_the_cost_is_the_length_of_the_cache(self) -> None:
        running = instance()
        state = running.admit(request("what is", 5))
        costs = [running.cost(state)]
        for _ in range(5):
            running.step([state])
            costs.append(running.cost(state))
        assert costs == [7, 8, 9, 10, 11, 12]
        assert running.bound(state.request) == 12

    def test_the_seed_determines_the_text(self) -> None:
        requests = [request("the ", 40, seed, 1.0) for seed in (1, 1, 2)]
        first, second, other = texts(drive(instance(), requests))
        assert first == second != other

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            (request("", 3), "prompt: expected at least one character"),
            (request("a", 0), "max_tokens: expected 1 to 255 after this prompt, got 0"),
            (request("a", 256), "max_tokens: expected 1 to 255 after this prompt, got 256"),
            (request("a%", 3), "prompt: the model does not know '%'"),
            (request("a", 3, temperature=-1.0), "temperature: expected at least 0, got -1.0"),
            (request("a", 3, temperature=float("nan")), "temperature: expected at least 0"),
        ],
    )
    def test_an_invalid_request_fails_alone_and_says_why(self, wrong: Any, text: str) -> None:
        driven = drive(instance(), [Arrival(request=wrong), request("a", 3)])
        error = driven.outcomes[0].error
        assert isinstance(error, pyserve.Abort)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert text in str(error)
        assert len(driven.outcomes[1].values) == 3
