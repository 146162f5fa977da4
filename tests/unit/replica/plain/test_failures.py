"""Which status a plain call gets whose handler raised, and what the log says of it."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode

from pyserve.errors import RequestTimeout
from pyserve.replica.plain.calls import status_of_plain


def _context(remaining_s: float | None) -> Any:
    return SimpleNamespace(
        call=SimpleNamespace(framed=False),
        method=SimpleNamespace(path="/p/Method"),
        cancel_reason=None,
        time_remaining=lambda: remaining_s,
    )


@pytest.mark.parametrize("error", [TimeoutError("own"), RequestTimeout("nested")])
@pytest.mark.parametrize("remaining_s", [0.0, 2.0, None])
def test_a_timeout_is_the_callers_where_its_deadline_has_passed(
    error: Exception, remaining_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        status = status_of_plain(error, _context(remaining_s), development=False)
    (record,) = caplog.records
    if remaining_s == 0.0:
        assert (StatusCode.DEADLINE_EXCEEDED, logging.DEBUG) == (status.code, record.levelno)
        assert "log" not in status.details
    else:
        nested = isinstance(error, RequestTimeout)
        code = StatusCode.DEADLINE_EXCEEDED if nested else StatusCode.INTERNAL
        assert (code, logging.ERROR) == (status.code, record.levelno)


def test_other_errors_are_told_however_late_they_are(caplog: pytest.LogCaptureFixture) -> None:
    status = status_of_plain(ValueError("a secret"), _context(0.0), development=False)
    assert StatusCode.INTERNAL is status.code
    assert "secret" not in status.details
    assert logging.ERROR == caplog.records[0].levelno
