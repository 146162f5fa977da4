"""Cards that describe the models of ``LLMConfig``s, as ``/v1/models`` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyserve.llm.config import LLMConfig
from pyserve.llm.openai_api_models import Json, ModelCard
from pyserve.llm.request_router import PREFIX_AFFINITY, affinity_of


def to_model_metadata(
    model_id: str, model_config: LLMConfig, overrides: Mapping[str, Any] | None = None
) -> ModelCard:
    """Return the card of a model.

    Args:
        model_id: The name that clients give; with an adapter, ``model:adapter``.
        model_config: Of the model.
        overrides: Metadata that replace those of the configuration.
    """
    metadata: Json = {
        "model_id": model_config.model_id,
        "max_request_context_length": model_config.max_request_context_length,
    }
    if affinity_of(model_config) is not None:
        metadata[PREFIX_AFFINITY] = True
    return ModelCard(id=model_id, metadata=metadata | dict(overrides or {}))
