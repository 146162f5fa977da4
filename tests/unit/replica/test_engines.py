"""What a replica announces of an engine's models."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyserve.llm import Engine, Model
from pyserve.replica.engines import engine_models
from pyserve.replica.loading import Loaded, LoadError

SERVICE = SimpleNamespace(name="pyserve.llm.v1.Engine")
LOADED = cast("Loaded", SimpleNamespace(services=[SERVICE]))


class Answering(Engine):
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def models(self) -> Any:
        return self._answer


async def test_models_are_announced_as_the_engine_has_them() -> None:
    models = await engine_models(LOADED, Answering([Model("größe/a:b c", aliases=("100%",))]))
    assert [(each.id, each.aliases) for each in models] == [("größe/a:b c", ["100%"])]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "not iterable"),
        (["a"], "'a' has no id"),
        ([Model("")], "has no id"),
        ([Model("a\r\nx: y")], r"the name 'a\\r\\nx: y' has characters"),
        ([Model("a", aliases=("\0",))], "has characters that are not printable"),
        ([Model("a", adapters=("b\n",))], "has characters that are not printable"),
        ([Model("\ud800")], "surrogates"),
    ],
)
async def test_models_that_clients_could_not_name_are_refused(answer: Any, expected: str) -> None:
    with pytest.raises(LoadError, match=expected):
        await engine_models(LOADED, Answering(answer))
