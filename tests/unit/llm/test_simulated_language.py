"""Tokens and texts of the simulated engine."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.llm.simulated.language import (
    babble,
    block_hashes,
    bytes_of,
    embedding_of,
    instance_of,
    text_of,
    tokens_of,
)


@given(st.text())
def test_tokens_are_the_text(text):
    assert text == text_of(tokens_of(text))


@given(st.text(), st.text())
def test_a_text_that_ends_with_a_space_has_the_same_tokens_before_any_other(text, other):
    begin = f"{text} "
    assert tokens_of(begin) == tokens_of(begin + other)[: len(tokens_of(begin))]


@given(st.integers(0, 2**32 - 1))
def test_any_number_has_bytes_or_none(token):
    assert len(bytes_of(token)) <= 3


def test_an_answer_depends_on_its_seed_and_ends_with_a_space():
    assert babble(b"a", 100) == babble(b"a", 100)
    assert babble(b"a", 100)[:70] == babble(b"a", 70)
    assert babble(b"a", 70) != babble(b"b", 70)
    assert babble(b"a", 70) == tokens_of(text_of(babble(b"a", 70)))


def test_hashes_stand_for_all_before_them():
    first, second = block_hashes([1] * 8, 4)
    assert [first, second] == block_hashes([1] * 8 + [2], 4)
    assert second != block_hashes([2] * 4 + [1] * 4, 4)[1]


def test_texts_that_share_words_have_similar_embeddings():
    def similarity(one, other):
        return sum(a * b for a, b in zip(*map(_embedding, (one, other)), strict=True))

    def _embedding(text):
        vector = embedding_of(text, 64)
        assert pytest.approx(1) == math.hypot(*vector)
        return vector

    near = similarity("the capital of france", "paris is the capital of france")
    assert near > similarity("the capital of france", "bread and butter") + 0.3


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ({"type": ["string", "null"]}, "ba"),
        ({"enum": ["x", "y"]}, "x"),
        ({"const": None}, None),
        ({"type": "array", "items": {"type": "boolean"}}, [True]),
        ({}, "ba"),
    ],
)
def test_a_value_fits_its_schema(schema, expected):
    assert expected == instance_of(schema)
