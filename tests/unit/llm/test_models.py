"""Models by the names that requests have for them."""

from __future__ import annotations

import pytest

from pyserve.llm.models import Model, find_model

MODELS = [
    Model("llama:8b", aliases=("small",), takes_adapters=True, adapters=("sql",)),
    Model("llama", adapters=("fixed:1",)),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama:8b", ("llama:8b", "")),
        ("small", ("llama:8b", "")),
        ("small:poems", ("llama:8b", "poems")),
        ("llama:8b:a:b", ("llama:8b", "a:b")),
        ("llama:8b:", None),
        ("llama", ("llama", "")),
        ("llama:fixed:1", ("llama", "fixed:1")),
        ("llama:other", None),
        (":", None),
        ("", None),
    ],
)
def test_a_model_is_found_by_any_of_its_names_as_at_the_ingress(name, expected):
    model, adapter = find_model(name, MODELS)
    assert (model and (model.id, adapter)) == expected
