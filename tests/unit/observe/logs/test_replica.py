"""How a replica logs: levels, encodings, files and more attributes, changed while it runs."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyserve.config import LoggingConfig
from pyserve.config.logs import LogSettings
from pyserve.errors import OptionError
from pyserve.replica.logs import ReplicaLogs

pytestmark = pytest.mark.parity("G-19")
LOGGER = logging.getLogger("shop.model")


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[ReplicaLogs]:
    root = logging.getLogger()
    level, formatters = root.level, [handler.formatter for handler in root.handlers]
    made = ReplicaLogs("shop", "Model", "Model#abcde", LogSettings())
    yield made
    made.close()
    root.setLevel(level)
    for handler, formatter in zip(root.handlers, formatters, strict=True):
        handler.setFormatter(formatter)


def lines(folder: Path) -> list[str]:
    (file,) = folder.iterdir()
    assert "replica_shop_Model_abcde.log" == file.name
    return file.read_text().splitlines()


def test_what_is_below_the_level_is_not_written(logs: ReplicaLogs, tmp_path: Path) -> None:
    logs.follow(LoggingConfig(log_level="ERROR", logs_dir=str(tmp_path)))
    LOGGER.warning("soon full")
    LOGGER.error("full")

    (line,) = lines(tmp_path)
    assert line.startswith("E ")
    assert line.endswith("shop.model: full")


@pytest.mark.parametrize("end", ["moved", "removed"])
def test_a_file_that_another_program_rotates_is_made_again(
    end: str, logs: ReplicaLogs, tmp_path: Path
) -> None:
    folder, old = tmp_path / "logs", tmp_path / "old"
    logs.follow(LoggingConfig(logs_dir=str(folder)))
    LOGGER.error("before")
    (file,) = folder.iterdir()
    file.rename(old) if end == "moved" else file.unlink()
    LOGGER.error("after")
    (line,) = lines(folder)
    assert line.endswith("shop.model: after")
    file.unlink()
    logs.write([logging.makeLogRecord({"msg": "a call"})], everywhere=False)
    assert lines(folder)[0].endswith("a call")


@pytest.mark.parametrize("name", ["n" * 300, "ß" * 300, "a/b"])
def test_any_name_has_a_file(name: str, tmp_path: Path) -> None:
    others: list[str] = []
    for application in (name, f"{name}x"):
        logs = ReplicaLogs(application, name, f"{name}#abcde", LogSettings())
        folder = tmp_path / str(len(others))
        try:
            logs.follow(LoggingConfig(logs_dir=str(folder)))
        finally:
            logs.close()
        (file,) = folder.iterdir()
        # A rotated one has a number behind it.
        assert len(file.name.encode()) < 250
        assert file.name.startswith(f"replica_{name[:1]}")
        others.append(file.name)
    assert len(set(others)) == 2


def test_another_level_and_encoding_are_taken_on(logs: ReplicaLogs, tmp_path: Path) -> None:
    logs.follow(LoggingConfig(logs_dir=str(tmp_path)))
    LOGGER.debug("not seen")
    LOGGER.info("as text")
    logs.follow(LoggingConfig(logs_dir=str(tmp_path), log_level="DEBUG", encoding="JSON"))
    LOGGER.debug("as %s", "JSON", extra={"shelf": 3})

    text, value = lines(tmp_path)
    assert text.endswith("as text")
    found = json.loads(value)
    assert {
        "levelname": "DEBUG",
        "name": "shop.model",
        "message": "as JSON",
        "application": "shop",
        "deployment": "Model",
        "replica": "Model#abcde",
        "shelf": 3,
    }.items() <= found.items()
    assert {"asctime", "filename", "lineno"} < found.keys()


def test_an_exception_is_in_the_object(logs: ReplicaLogs, tmp_path: Path) -> None:
    logs.follow(LoggingConfig(logs_dir=str(tmp_path), encoding="JSON"))
    try:
        raise ValueError("no\nmodel")
    except ValueError:
        LOGGER.exception("failed", extra={"cause": object, "message_id": 1})

    (line,) = lines(tmp_path)
    found = json.loads(line)
    assert "ValueError: no\nmodel" in found["exc_text"]
    assert "<class 'object'>" == found["cause"]


@pytest.mark.parametrize("encoding", ["TEXT", "JSON"])
def test_more_attributes_are_in_each_line(logs: ReplicaLogs, tmp_path: Path, encoding: str) -> None:
    names = ["funcName", "nowhere"]
    logs.follow(
        LoggingConfig(
            logs_dir=str(tmp_path), encoding=encoding, additional_log_standard_attrs=names
        )
    )
    LOGGER.info("hello")

    (line,) = lines(tmp_path)
    mine = "test_more_attributes_are_in_each_line"
    if encoding == "TEXT":
        assert line.endswith(f"hello funcName={mine} nowhere=None")
    else:
        found = json.loads(line)
        assert (mine, None) == (found["funcName"], found["nowhere"])


def test_a_folder_that_cannot_be_had_changes_nothing(logs: ReplicaLogs, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    before = tmp_path / "before"
    logs.follow(LoggingConfig(logs_dir=str(before)))

    with pytest.raises(OptionError, match=r"logging_config.logs_dir='.*taken': .* name a folder"):
        logs.follow(LoggingConfig(logs_dir=str(taken), log_level="ERROR"))

    LOGGER.info("as before")
    assert lines(before)[-1].endswith("as before")


def test_without_a_folder_the_file_is_closed(logs: ReplicaLogs, tmp_path: Path) -> None:
    logs.follow(LoggingConfig(logs_dir=str(tmp_path)))
    LOGGER.info("here")
    logs.follow(LoggingConfig())
    LOGGER.info("elsewhere")

    assert 1 == len(lines(tmp_path))
