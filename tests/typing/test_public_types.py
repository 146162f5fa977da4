"""The public interface as a type checker sees it: `make types` reads this, pytest runs it."""

import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type, get_args

import grpc
import pytest

import pyserve
from pyserve.batching.decorator import Batched
from pyserve.driver.status import MeshStatus


class Plain:
    """Stands for any class; the decorator is called as a function, which mypy follows."""

    def __init__(self, size: int) -> None:
        self.size = size


def test_a_deployment_knows_its_class():
    bare = pyserve.deployment(Plain)
    with_options = pyserve.deployment(num_replicas=2)(Plain)

    assert_type(with_options.target, type[Plain])
    assert_type(with_options.bind(3), pyserve.Application[Plain])
    assert_type(bare.options(num_replicas=3).bind(3), pyserve.Application[Plain])
    of_any_arguments: pyserve.Deployment[Plain] = bare
    assert of_any_arguments is bare
    assert with_options.name == "Plain"


def test_a_batched_function_knows_what_each_caller_gets():
    @pyserve.batch
    async def bare(numbers: list[int]) -> list[str]:
        return [str(number) for number in numbers]

    @pyserve.batch(max_batch_size=4)
    async def with_options(numbers: list[int]) -> list[str]:
        return [str(number) for number in numbers]

    assert_type(bare, Batched[str])
    assert_type(with_options, Batched[str])


def test_a_mark_keeps_the_type_of_its_method():
    @pyserve.method(idempotent=True)
    def double(number: int) -> int:
        return 2 * number

    assert_type(double(2), int)
    assert double(2) == 4


def test_errors_have_a_code_and_a_retry_decision():
    error = pyserve.Abort(grpc.StatusCode.NOT_FOUND, "no such user")

    assert_type(error.code, grpc.StatusCode)
    assert_type(error.retryable, bool)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parity("G-54")
def test_the_checker_finds_the_types_that_are_written_here():
    """Running ``assert_type`` checks nothing; without a cache the checker takes a minute."""
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(folder)],
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.parity("G-54")
def test_a_handle_and_what_it_returns_take_type_parameters():
    """And may be written without them; public_api.py shows what follows from them."""
    typed: pyserve.DeploymentHandle[Plain] = pyserve.DeploymentHandle("Plain", "default")
    bare: pyserve.DeploymentHandle = typed.options(stream=True)

    assert_type(typed.predict, pyserve.DeploymentHandle[Any])
    assert bare != typed
    assert get_args(pyserve.DeploymentResponse[int]) == (int,)
    assert get_args(pyserve.DeploymentResponseGenerator[int]) == (int,)
    assert get_args(pyserve.ObjectRef[int]) == (int,)


def driver(app: pyserve.Application) -> None:
    """Only read by the checker: these calls would start a mesh."""
    handle = pyserve.run(app)
    assert_type(handle, pyserve.DeploymentHandle)
    assert_type(handle.channel(), grpc.aio.Channel)
    assert_type(pyserve.status(), MeshStatus)
    pyserve.run(app, name=3)  # type: ignore[arg-type]  # shows that the check is strict
    pyserve.run("app")  # type: ignore[arg-type]
