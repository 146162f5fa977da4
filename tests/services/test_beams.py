"""Beam search, compared with exhaustive search and with rescoring."""

from __future__ import annotations

import dataclasses
from typing import Any

import grpc
import pytest

import pyserve
from pyserve.stepping.decorator import options_of
from pyserve.testing import drive
from services.beams import beams_pb2
from services.beams.search import Search
from services.beams.service import BEAMS_MAX, Beams
from services.letters.model import Transformer
from tests.services.test_letters import tiny

_STEPS = 4


def exhaustive(
    model: Transformer, prompt: list[int], steps: int, until: int | None
) -> tuple[float, list[int]]:
    """Return the log probability of the best of all continuations, and its tokens."""
    ended: list[tuple[float, list[int]]] = []
    going: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(steps):
        logs = model.extend([(model.new_cache(), [*prompt, *tokens]) for _, tokens in going])
        longer = [
            (total + float(row[token]), [*tokens, token])
            for (total, tokens), row in zip(going, logs, strict=True)
            for token in range(len(model.alphabet))
        ]
        ended += [each for each in longer if each[1][-1] == until]
        going = [each for each in longer if each[1][-1] != until]
    return max([*ended, *going])


def rescored(model: Transformer, prompt: list[int], tokens: list[int]) -> float:
    """Return the log probability of a continuation, computed without a cache."""
    total = 0.0
    for number, token in enumerate(tokens):
        logs = model.extend([(model.new_cache(), [*prompt, *tokens[:number]])])
        total += float(logs[0, token])
    return total


def searched(model: Transformer, prompt: list[int], width: int, until: int | None) -> Search:
    search = Search(prompt, model.new_cache(), width=width, max_tokens=_STEPS, until=until)
    while not search.has_ended:
        search.advance(model.extend([(beam.cache, beam.pending(2)) for beam in search.beams]))
        assert len(search.beams) <= width
    return search


def instance(**changed: Any) -> tuple[Any, Any]:
    made = Beams.func_or_class()
    return made, dataclasses.replace(options_of(type(made)), **changed)


def request(prompt: str, count: int, beams: int, until: str = "") -> Any:
    return beams_pb2.SearchRequest(prompt=prompt, max_tokens=count, beams=beams, until=until)


class TestSearch:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("until", [None, 0])
    def test_enough_beams_find_what_exhaustive_search_finds(
        self, seed: int, until: int | None
    ) -> None:
        model = tiny("abc", seed)
        prompt = model.encode("abcba")
        best = searched(model, prompt, 3 ** (_STEPS - 1), until).best
        log_probability, tokens = exhaustive(model, prompt, _STEPS, until)
        assert best is not None
        assert best.tokens[len(prompt) :] == tokens
        assert best.log_probability == pytest.approx(log_probability, abs=1e-9)

    def test_one_beam_never_beats_exhaustive_search(self) -> None:
        gaps = []
        for seed in range(12):
            model = tiny("abcd", seed)
            prompt = model.encode("a")
            most, _ = exhaustive(model, prompt, _STEPS, None)
            found = searched(model, prompt, 1, None).best
            assert found is not None
            tokens = found.tokens[1:]
            assert found.log_probability == pytest.approx(rescored(model, prompt, tokens), abs=1e-9)
            gaps.append(most - found.log_probability)
        assert min(gaps) > -1e-9
        assert max(gaps) > 1e-3

    def test_a_step_compares_all_extensions_of_the_beams(self) -> None:
        model = tiny("abcd", 3)
        search = searched(model, model.encode("ab"), 3, None)
        assert search.compared == 3 * 4


class TestService:
    @pytest.mark.slow
    def test_batching_changes_no_result(self) -> None:
        requests = [
            request("the replica ", 12, 4),
            request("a", 30, 1),
            request("what is served by a router " * 3, 10, 16, until="."),
            request("the router", 20, 8, until=" "),
        ]
        made, limits = instance()
        together = drive(made, requests, options=limits)
        found = [values[0] for values in together.values]
        alone = [drive(made, [each], options=limits).values[0][0] for each in requests]
        assert [each.text for each in found] == [each.text for each in alone]
        for one, other in zip(found, alone, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-9)
        assert max(len(step.requests) for step in together.steps) == 4
        assert found[3].text.endswith(" ")
        model = Transformer.load()
        for asked, one in zip(requests, found, strict=True):
            again = rescored(model, model.encode(asked.prompt), model.encode(one.text))
            assert one.log_probability == pytest.approx(again, abs=1e-9)

    def test_the_cost_grows_with_the_beams(self) -> None:
        made, _ = instance()
        asked = request("the ", 3, 5)
        state = made.admit(asked)
        costs = [made.cost(asked), made.cost(state)]
        results: list[Any] = [None]
        while results == [None]:
            results = made.step([state])
            costs.append(made.cost(state))
        assert costs == [4, 4, 5 * 5, 5 * 6, 0]
        assert max(costs) <= made.bound(asked)

    def test_the_bound_of_a_search_is_reserved(self) -> None:
        made, limits = instance(budget=100)
        works = [request("a", 9, 5), request("a", 9, 5), request("a", 9, 6)]
        driven = drive(made, works, step_s=1.0, options=limits)
        assert [len(step.requests) for step in driven.steps] == [2] * 9 + [1] * 9
        with pytest.raises(pyserve.RequestTooLarge, match="costs 110"):
            _ = drive(made, [request("a", 9, 11)], options=limits).values

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            (request("a", 3, 0), f"beams: expected 1 to {BEAMS_MAX}, got 0"),
            (request("a", 3, 17), f"beams: expected 1 to {BEAMS_MAX}, got 17"),
            (request("a", 3, 2, "ab"), "until: expected one character"),
            (request("a", 3, 2, "%"), "until: expected one character"),
            (request("", 3, 2), "prompt: expected at least one character"),
        ],
    )
    def test_an_invalid_request_says_why(self, wrong: Any, text: str) -> None:
        made, limits = instance()
        error = drive(made, [wrong], options=limits).outcomes[0].error
        assert isinstance(error, pyserve.Abort)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert text in str(error)
