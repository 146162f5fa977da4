"""LangChain's and LiteLLM's clients against the doors of a simulated engine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.parity("G-86")]


@pytest.mark.parametrize(
    ("program", "package"), [("langchain", "langchain_openai"), ("litellm", "litellm")]
)
def test_a_framework_finds_what_it_knows(program: str, package: str, base_url: str):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package.replace('_', '-')}")
    command = [sys.executable, "-m", "tests.contract.llm.frameworks", program, base_url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert 0 == ended.returncode, ended.stderr[-4000:]
