"""An application of models from a file, as ``pyserve deploy`` and ``pyserve run`` take it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import yaml

from tests.mesh.commands import foreground

pytestmark = [pytest.mark.slow, pytest.mark.parity("G-86")]

MODEL = {
    "model_loading_config": {"model_id": "qwen-0.5b"},
    "llm_engine": "simulated",
    "engine_kwargs": {"tokens": 3},
    "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 2}},
}


def file_of(folder: Path, **args) -> Path:
    application = {
        "name": "llm_app",
        "route_prefix": "/",
        "import_path": "pyserve.llm:build_openai_app",
        "args": args,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"applications": [application]}))
    return path


def test_a_file_is_run(mesh_environment: dict[str, str], tmp_path: Path):
    path = file_of(tmp_path, llm_configs=[MODEL])

    with foreground(mesh_environment, str(path)) as running:
        response = httpx.post(
            f"http://{running.address}/v1/chat/completions",
            json={"model": "qwen-0.5b", "messages": [{"role": "user", "content": "Hello"}]},
            timeout=20,
        )

    assert 200 == response.status_code, response.text
    assert 3 == response.json()["usage"]["completion_tokens"]


def test_what_is_wrong_in_a_file_is_named(mesh_environment: dict[str, str], tmp_path: Path):
    from tests.mesh.commands import pyserve

    path = file_of(tmp_path, llm_configs=[MODEL | {"engine_kwarg": {}}])

    result = pyserve("run", str(path), environment=mesh_environment)

    assert 0 != result.returncode
    assert "engine_kwarg" in result.stderr
    assert "Extra inputs are not permitted" in result.stderr
