"""Applications of models in the process of a test, without a mesh."""

from typing import Any

import pytest

import pyserve.testing
from pyserve import llm
from pyserve.llm.openai_api_models import ChatCompletionRequest

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]


def model(model_id: str) -> dict[str, Any]:
    return {
        "model_loading_config": {"model_id": model_id},
        "llm_engine": "simulated",
        "engine_kwargs": {"tokens": 2},
    }


def test_a_model_is_called_by_its_handle():
    asked = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "Hello"}])

    with pyserve.testing.local(llm.build_openai_app({"llm_configs": [model("m")]})) as handle:
        (answer,) = handle.options(stream=True).chat.remote(asked)

    assert 2 == answer.usage.completion_tokens


def test_the_root_of_several_models_lists_them():
    app = llm.build_openai_app({"llm_configs": [model("a"), model("b")]})

    with pyserve.testing.local(app) as handle:
        found = handle.models.remote().result(timeout_s=10)

    assert ["a", "b"] == [each.id for each in found.data]
