"""The built-in exceptions that code of Ray Serve's users catches."""

from __future__ import annotations

import pytest

import pyserve as serve
from pyserve.exceptions import RayServeException
from tests.mesh.ray_serve.apps import Broken, Combine, Model, Streamer, Unwell
from tests.mesh.ray_serve.conftest import Run


def test_a_deploy_that_fails_is_a_runtime_error(run: Run) -> None:
    with pytest.raises(RuntimeError, match="no weights") as caught:
        run(Combine.bind(Broken.options(max_constructor_retry_count=1).bind()))
    assert isinstance(caught.value, RayServeException)


def test_a_check_that_fails_from_the_start_fails_the_deploy(run: Run) -> None:
    with pytest.raises(RuntimeError, match=r"Unwell\.check_health .*disk of the weights is gone"):
        run(Unwell.bind())


async def test_a_loop_that_runs_is_not_blocked(run: Run) -> None:
    response = run(Model.bind(2)).remote(1)
    with pytest.raises(RuntimeError, match="await response"):
        response.result()
    assert 2 == await response


def test_streams_and_values_are_told_apart(run: Run) -> None:
    handle = run(Streamer.bind())
    with pytest.raises(TypeError, match=r"\.options\(stream=True\)"):
        handle.count.remote(2).result(timeout_s=30)
    with pytest.raises(TypeError, match="no generator"):
        next(handle.options(stream=True).one.remote())
    assert [0, 1] == list(handle.options(stream=True).count.remote(2))


def test_a_batch_has_to_return_a_list(run: Run) -> None:
    handle = run(Streamer.bind())
    with pytest.raises(TypeError, match="no_list returned int; return a list"):
        handle.no_list.remote(1).result(timeout_s=30)


def test_decorators_refuse_what_they_do_not_fit() -> None:
    def plain(items: list[int]) -> list[int]:
        return items

    async def of_three(self: object, first: str, second: str) -> str:
        return first + second

    for wrong in (plain, 3):
        with pytest.raises(TypeError, match=r"@pyserve\.batch on"):
            serve.batch(wrong)  # type: ignore[arg-type]
    for loader in (plain, of_three, 3):
        with pytest.raises(TypeError, match=r"@pyserve\.multiplexed on"):
            serve.multiplexed(loader)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="neither a class nor a function"):
        serve.deployment(3)  # type: ignore[call-overload]


def test_run_takes_applications_only() -> None:
    with pytest.raises(TypeError, match=r"write Model\.bind"):
        serve.run(Model)  # type: ignore[arg-type]
