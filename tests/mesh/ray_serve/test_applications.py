"""Applications that are there already, or are not there."""

from __future__ import annotations

import pytest

import pyserve as serve
from pyserve.exceptions import RayServeException
from tests.mesh.ray_serve.apps import Model
from tests.mesh.ray_serve.conftest import Run


@pytest.mark.parity("G-57")
def test_deleting_what_is_not_there_is_a_line_in_the_log(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    handle = run(Model.bind(2), name="here")

    serve.delete("nope")

    [line] = caplog.messages
    assert "nothing is deleted" in line
    assert "'nope'" in line
    assert 2 == handle.remote(1).result(timeout_s=30)
    serve.delete("here")
    assert "here" not in serve.status().applications


@pytest.mark.slow
def test_two_applications_cannot_have_one_route_prefix(run_in_mesh: Run) -> None:
    run_in_mesh(Model.bind(2), name="first", route_prefix="/model")
    with pytest.raises(RayServeException, match=r"'/model' of application 'second' belongs to"):
        run_in_mesh(Model.bind(3), name="second", route_prefix="/model")
    assert "second" not in serve.status().applications


def test_a_handle_is_initialized_once(run: Run) -> None:
    handle = run(Model.bind(2))
    handle._init(_prefer_local_routing=True)
    with pytest.raises(RuntimeError, match="already initialized"):
        handle._init(_prefer_local_routing=False)
    assert 2 == handle.remote(1).result(timeout_s=30)
