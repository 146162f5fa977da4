"""The error that the caller of a handle gets when its call fails."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

import pyserve
from pyserve.errors import SerializationError, UsageError
from tests.mesh.handles.apps import EmptyError, FrozenError, HomeMadeError, UnreadableError

pytestmark = pytest.mark.slow


@pytest.mark.parity("S-03")
async def test_an_exception_arrives_with_its_type(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(HomeMadeError, match="number 7") as caught:
        await worker.fail.remote("own")
    assert 7 == caught.value.number
    assert "HomeMadeError(7)" in caught.value.remote_traceback
    with pytest.raises(KeyError) as builtin:
        await worker.fail.remote("builtin")
    assert ("no such key",) == builtin.value.args


@pytest.mark.parity("S-03")
def test_an_exception_arrives_in_scripts(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(HomeMadeError, match="number 7"):
        worker.fail.remote("own").result(timeout_s=30)


@pytest.mark.parity("S-03")
async def test_a_type_that_cannot_be_imported_becomes_a_remote_error(
    worker: pyserve.DeploymentHandle,
) -> None:
    with pytest.raises(pyserve.RemoteError, match="cannot be imported") as caught:
        await worker.fail.remote("local")
    assert caught.value.type_name.endswith("UnreachableError")
    assert "in fail" in caught.value.remote_traceback


async def test_the_traceback_has_the_whole_chain(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(RuntimeError, match="the second") as caught:
        await worker.fail.remote("caused")
    assert "ValueError: the first" in str(caught.value.__cause__)


async def test_an_exception_passes_through_a_replica(chief: pyserve.DeploymentHandle) -> None:
    with pytest.raises(HomeMadeError, match="number 7") as caught:
        await chief.fail_below.remote("own")
    assert "in fail_below" in caught.value.remote_traceback
    assert "raise HomeMadeError(7)" in caught.value.remote_traceback


async def test_tracebacks_have_no_frames_of_this_package(chief: pyserve.DeploymentHandle) -> None:
    """What a handler awaits is ours; what its author looks for is not."""
    with pytest.raises(HomeMadeError) as caught:
        await chief.fail_below.remote("own")
    assert "in fail_below" in caught.value.remote_traceback
    assert str(Path(pyserve.__file__).parent) not in caught.value.remote_traceback


@pytest.mark.parametrize(
    ("kind", "type_of_error"),
    [("frozen", FrozenError), ("false", EmptyError), ("unreadable", UnreadableError)],
)
async def test_an_odd_exception_ends_a_call_and_a_stream(
    worker: pyserve.DeploymentHandle, kind: str, type_of_error: type[Exception]
) -> None:
    patient = worker.options(timeout_s=30)
    with pytest.raises(type_of_error):
        await patient.fail.remote(kind)
    stream = patient.options(stream=True).fail_after_one.remote(kind)
    assert 1 == await anext(stream)
    with pytest.raises(type_of_error):
        await anext(stream)


async def test_abort_keeps_code_text_and_metadata(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(pyserve.Abort) as caught:
        await worker.fail.remote("abort")
    assert grpc.StatusCode.NOT_FOUND is caught.value.code
    assert "no such digit" == caught.value.details
    assert (("why", "7"),) == caught.value.trailing_metadata


async def test_a_method_that_is_not_there_is_named(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises((UsageError, pyserve.Abort), match=r"gathr.*did you mean 'gather'"):
        await worker.gathr.remote()


async def test_wrong_arguments_are_a_type_error(worker: pyserve.DeploymentHandle) -> None:
    with pytest.raises(TypeError, match="size_of"):
        await worker.size_of.remote()


@pytest.mark.parity("S-78")
async def test_a_value_that_no_codec_carries_is_refused_where_it_is_written(
    worker: pyserve.DeploymentHandle,
) -> None:
    with pytest.raises(SerializationError, match="json"):
        worker.options(request_serialization="json").remote({1, 2})


async def test_a_stream_must_be_asked_for_and_a_value_must_not(
    worker: pyserve.DeploymentHandle,
) -> None:
    with pytest.raises(UsageError, match=r"options\(stream=True\)"):
        await worker.count_up.remote(3)
    with pytest.raises(UsageError, match="has returned int, no generator"):
        await anext(worker.add.options(stream=True).remote(3))


async def test_a_deployment_that_is_not_there_is_unavailable(session: object) -> None:
    missing = pyserve.DeploymentHandle("Nobody", "default")
    with pytest.raises(pyserve.DeploymentUnavailable, match="Nobody"):
        await missing.options(timeout_s=30).remote()
