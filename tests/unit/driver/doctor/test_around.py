"""An endpoint of OTLP that nobody listens at, and names of variables that nothing reads."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pyserve.config import read_settings
from pyserve.driver.doctor import check_environment, check_otlp
from pyserve.driver.doctor_mesh import State


def settings(endpoint: str, **variables: str) -> Any:
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} if endpoint else {}
    return read_settings({"PYSERVE_HOME": "/h", **named, **variables})


def test_an_endpoint_that_takes_connections_is_fine_and_one_that_does_not_is_wrong() -> None:
    with socket.socket() as collector:
        collector.bind(("127.0.0.1", 0))
        collector.listen()
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        (found,) = check_otlp(settings(endpoint))
        assert State.OK is found.state
    (found,) = check_otlp(settings(endpoint))
    assert State.WRONG is found.state
    assert endpoint in found.text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in found.remedy


def test_an_endpoint_that_is_none_is_wrong() -> None:
    (found,) = check_otlp(settings("http://127.0.0.1:many"))
    assert State.WRONG is found.state


@pytest.mark.parametrize(
    "found",
    [settings(""), settings("http://127.0.0.1:1", OTEL_SDK_DISABLED="true")],
    ids=["none", "switched off"],
)
def test_where_nothing_is_traced_nobody_is_missed(found: Any) -> None:
    assert [] == list(check_otlp(found))


def test_a_variable_that_nothing_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSERVE_LOG_DIRR", "/x")
    notices = [each for each in check_environment() if each.state is State.NOTICE]
    assert any("PYSERVE_LOG_DIRR" in each.text for each in notices)
