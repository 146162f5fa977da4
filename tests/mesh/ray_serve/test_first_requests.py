"""Requests that come while the first replica of an application is being constructed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import pyserve as serve
from tests.mesh.ray_serve.apps import Constructed, ConstructedWeb
from tests.mesh.ray_serve.conftest import Run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def _get(path: str) -> httpx.Response:
    return httpx.get(f"http://{serve.status().addresses[0]}{path}", timeout=60)


def _is_led(prefix: str) -> bool:
    return prefix in _get("/-/routes").text


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    """Threads that wait meanwhile."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.mark.parametrize("deployment", [Constructed, ConstructedWeb])
def test_they_wait_for_it(
    run_in_mesh: Run,
    others: ThreadPoolExecutor,
    deployment: serve.Deployment,
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    app = deployment.bind(str(told))
    deploy = others.submit(run_in_mesh, app, name="first", route_prefix="/first")
    try:
        wait_until(lambda: _is_led("/first"), 30)
        asked = others.submit(_get, "/first")
        wait_until(lambda: 1 == serve.status().ingress.parked, 30)
        assert not deploy.done()
    finally:
        told.write_text("well")

    deploy.result(60)
    assert (200, "well") == (asked.result(60).status_code, asked.result().text)


def test_they_end_where_it_cannot_be_constructed(
    run_in_mesh: Run, others: ThreadPoolExecutor, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    app = Constructed.bind(str(told))
    deploy = others.submit(run_in_mesh, app, name="first", route_prefix="/first")
    try:
        wait_until(lambda: _is_led("/first"), 30)
        asked = others.submit(_get, "/first")
        wait_until(lambda: 1 == serve.status().ingress.parked, 30)
    finally:
        told.write_text("raise")

    with pytest.raises(RuntimeError, match="as it was told"):
        deploy.result(60)
    assert 503 == asked.result(60).status_code
    wait_until(lambda: not _is_led("/first"), 30)
    assert 404 == _get("/first").status_code
