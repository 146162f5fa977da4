"""How processes log, as the environment and ``logging_config`` say it."""

import pytest

from pyserve.config import LoggingConfig, read_settings
from pyserve.config.telling import environment_of_logs
from pyserve.errors import OptionError


def test_without_variables_logs_are_text_of_every_event() -> None:
    found = read_settings({"PYSERVE_HOME": "/h"}).logs
    assert ("INFO", "TEXT", None) == (found.level, found.encoding, found.directory)


@pytest.mark.parity("S-59")
@pytest.mark.parametrize("name", ["PYSERVE_LOG_ENCODING", "RAY_SERVE_LOG_ENCODING"])
def test_the_encoding_has_two_names(name: str) -> None:
    assert "JSON" == read_settings({"PYSERVE_HOME": "/h", name: "json"}).logs.encoding


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYSERVE_LOG_ENCODING", "XML"),
        ("PYSERVE_LOG_LEVEL", "LOUD"),
        ("PYSERVE_LOG_ROTATION_BYTES", "1"),
        ("PYSERVE_LOG_ROTATION_BYTES", "many"),
        ("PYSERVE_LOG_ROTATION_COUNT", "0"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        read_settings({"PYSERVE_HOME": "/h", name: value})


def test_variables_are_the_defaults_of_a_deployment_and_what_it_says_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSERVE_LOG_ENCODING", "JSON")
    monkeypatch.setenv("PYSERVE_LOG_LEVEL", "warning")

    assert ("WARNING", "JSON") == (LoggingConfig().log_level, LoggingConfig().encoding)
    said = LoggingConfig(log_level="DEBUG", encoding="TEXT")
    assert ("DEBUG", "TEXT") == (said.log_level, said.encoding)


def test_what_a_mesh_is_started_with_reaches_its_processes() -> None:
    config = LoggingConfig(log_level="ERROR", encoding="JSON", logs_dir="/var/log/shop")
    found = read_settings({"PYSERVE_HOME": "/h", **environment_of_logs(config)}).logs
    assert ("ERROR", "JSON", "/var/log/shop") == (
        found.level,
        found.encoding,
        str(found.directory),
    )
