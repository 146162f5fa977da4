"""Crowds that rest keep nobody from a mesh, and those behind a proxy not each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.hostile.crowds import CROWDS, FILES_MAX

pytestmark = pytest.mark.slow

_TIMEOUT_S = 240.0


def _crowd(name: str, environment: dict[str, str]) -> dict[str, Any]:
    assert name in CROWDS
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.hostile.crowds", name],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ended.stdout, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert [] == seen["problems"], ended.stderr
    assert 0 == ended.returncode
    return seen


@pytest.mark.long
@pytest.mark.timeout(_TIMEOUT_S)
def test_more_clients_than_descriptors_stop_nothing(mesh_environment: dict[str, str]) -> None:
    """Neighbours, newcomers and health are answered, and a dead replica is replaced."""
    seen = _crowd("descriptors", mesh_environment)

    assert FILES_MAX * 3 // 4 == seen["counts"]["connections_max"]
    assert seen["counts"]["displaced"] > 0
    for name in ("silent", "idle_http1", "idle_http2"):
        assert seen[name]["connections"] < FILES_MAX


@pytest.mark.long
@pytest.mark.timeout(_TIMEOUT_S)
def test_a_crowd_behind_a_trusted_proxy_delays_nobody_there(
    mesh_environment: dict[str, str],
) -> None:
    assert 0 == _crowd("proxy", mesh_environment)["delayed"]
