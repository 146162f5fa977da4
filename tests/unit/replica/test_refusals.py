"""From an error of a call in the mesh to the answer of plain HTTP."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from pyserve.errors import (
    Abort,
    BackPressure,
    DeploymentUnavailable,
    ModelIdMissing,
    ModelLoadFailed,
    ModelNotFound,
    ReferenceLost,
    RemoteError,
    RequestCancelled,
    RequestTimeout,
)
from pyserve.replica.refusals import refusal_of


@pytest.mark.parametrize(
    ("error", "status", "retry_after_s"),
    [
        (RequestTimeout("by them"), 408, None),
        (RequestCancelled("by them"), 499, None),
        (DeploymentUnavailable("of them"), 503, 1),
        (ModelLoadFailed("of them"), 503, 1),
        (ReferenceLost("of them"), 500, None),
    ],
)
def test_each_error_has_its_status(
    error: Exception, status: int, retry_after_s: int | None
) -> None:
    refusal = refusal_of(error)
    assert refusal is not None
    assert (status, retry_after_s) == (refusal.status, refusal.retry_after_s)
    assert str(error) not in refusal.text


@pytest.mark.parametrize(("told_s", "expected_s"), [(None, 1), (0.01, 1), (1.2, 2), (7.0, 7)])
def test_a_full_deployment_says_with_what_and_when(told_s: float | None, expected_s: int) -> None:
    error = BackPressure("full")
    error.status_code, error.retry_after_s = 429, told_s
    refusal = refusal_of(error)
    assert refusal is not None
    assert (429, expected_s) == (refusal.status, refusal.retry_after_s)
    assert (b"retry-after", str(expected_s).encode()) in refusal.headers()


@pytest.mark.parametrize(("kind", "status"), [(ModelNotFound, 404), (ModelIdMissing, 400)])
def test_what_is_wrong_with_a_model_id_is_told(kind: type[Exception], status: int) -> None:
    refusal = refusal_of(kind("there is no such model"))
    assert refusal is not None
    assert (status, "there is no such model", None) == (
        refusal.status,
        refusal.text,
        refusal.retry_after_s,
    )


def test_an_abort_says_everything_itself() -> None:
    metadata = (("X-Why", "gone"), ("more-bin", b"\0"))
    refusal = refusal_of(Abort(StatusCode.NOT_FOUND, "no such house", metadata))
    assert refusal is not None
    assert (404, "no such house", None) == (refusal.status, refusal.text, refusal.retry_after_s)
    assert (b"x-why", b"gone") in refusal.headers()
    assert b"more-bin" not in dict(refusal.headers())


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_each_code_has_a_status(code: StatusCode) -> None:
    refusal = refusal_of(Abort(code))
    assert refusal is not None
    assert 400 <= refusal.status < 600
    assert code.name == refusal.text


@pytest.mark.parametrize("error", [ValueError("mine"), RemoteError("m:E", "theirs")])
def test_exceptions_of_user_code_are_none(error: Exception) -> None:
    assert refusal_of(error) is None
