"""How processes log, as the environment and ``logging_config`` say it."""

import pickle

import pytest

from pyserve.config import DeploymentOptions, LoggingConfig, LogSettings, read_settings
from pyserve.config.logging_config import environment_of_logs
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


def test_what_nobody_has_said_is_up_to_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSERVE_LOG_ENCODING", "RAY_SERVE_LOG_ENCODING", "PYSERVE_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    unset = DeploymentOptions.of({})
    assert ("INFO", "TEXT") == (unset.logging_config.log_level, unset.logging_config.encoding)
    by_level = DeploymentOptions.of({"logging_config": "debug"})
    said = DeploymentOptions.of({"logging_config": {"encoding": "TEXT", "log_level": "INFO"}})
    texts = [each.to_json() for each in (unset, by_level, said)]

    # As a controller and its replicas read them, and a controller writes them again.
    monkeypatch.setenv("PYSERVE_LOG_ENCODING", "JSON")
    monkeypatch.setenv("PYSERVE_LOG_LEVEL", "ERROR")
    read = [DeploymentOptions.from_peer(text).logging_config for text in texts]

    assert [("ERROR", "JSON"), ("DEBUG", "JSON"), ("INFO", "TEXT")] == [
        (each.log_level, each.encoding) for each in read
    ]


def test_what_nobody_has_said_stays_so_however_it_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSERVE_LOG_ENCODING", "RAY_SERVE_LOG_ENCODING", "PYSERVE_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    options = DeploymentOptions.of({}).updated({"num_replicas": 2})
    again = DeploymentOptions.from_json(options.to_json())
    assert {"log_level", "encoding"} == set(again.logging_config.unset)
    assert options.to_json() == again.to_json()
    assert LoggingConfig() == again.logging_config
    # Another release may not have the mark.
    assert str is type(pickle.loads(pickle.dumps(LoggingConfig())).encoding)


def test_what_a_mesh_is_started_with_reaches_its_processes() -> None:
    config = LoggingConfig(log_level="ERROR", encoding="JSON", logs_dir="/var/log/shop")
    found = read_settings({"PYSERVE_HOME": "/h", **environment_of_logs(config)}).logs
    assert ("ERROR", "JSON", "/var/log/shop") == (
        found.level,
        found.encoding,
        str(found.directory),
    )


def logs(**variables: str) -> LogSettings:
    return read_settings({"PYSERVE_HOME": "/h", **variables}).logs


@pytest.mark.parity("S-57")
@pytest.mark.parity("S-59")
@pytest.mark.parametrize("prefix", ["PYSERVE", "RAY_SERVE"])
def test_the_access_log_is_buffered_in_the_profile_and_what_is_set_wins(prefix: str) -> None:
    profile = {f"{prefix}_THROUGHPUT_OPTIMIZED": "1"}
    size = f"{prefix}_REQUEST_PATH_LOG_BUFFER_SIZE"
    assert 1 == logs().access_buffer_size
    assert 1000 == logs(**profile).access_buffer_size
    assert 7 == logs(**profile, **{size: "7"}).access_buffer_size
    assert 7 == logs(**{size: "7"}).access_buffer_size
    with pytest.raises(OptionError, match="PYSERVE_REQUEST_PATH_LOG_BUFFER_SIZE"):
        logs(**{size: "0"})


@pytest.mark.parity("S-58")
@pytest.mark.parity("S-59")
@pytest.mark.parametrize("prefix", ["PYSERVE", "RAY_SERVE"])
def test_logs_leave_standard_error_in_the_profile_and_what_is_set_wins(prefix: str) -> None:
    profile = {f"{prefix}_THROUGHPUT_OPTIMIZED": "1"}
    name = f"{prefix}_LOG_TO_STDERR"
    assert logs().to_standard_error
    assert not logs(**profile).to_standard_error
    assert logs(**profile, **{name: "1"}).to_standard_error
    assert not logs(**{name: "0"}).to_standard_error


@pytest.mark.parity("S-58")
def test_logs_that_go_nowhere_else_go_to_the_home_of_the_mesh() -> None:
    assert "/h/logs" == str(logs(PYSERVE_LOG_TO_STDERR="0").directory)
    assert "/var/x" == str(logs(PYSERVE_LOG_TO_STDERR="0", PYSERVE_LOG_DIR="/var/x").directory)
    assert logs().directory is None


@pytest.mark.parity("G-81")
def test_clients_are_not_named_unless_that_is_asked_for() -> None:
    assert not logs().client_addresses
    assert logs(RAY_SERVE_LOG_CLIENT_ADDRESS="1").client_addresses
    assert (None, True, False) == tuple(
        logs(PYSERVE_ACCESS_LOG=value).access_log for value in ("", "1", "0")
    )
