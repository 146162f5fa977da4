"""What pyserve logs in a process of the mesh is written, whatever user code does to ``logging``."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.config
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyserve.config import LoggingConfig
from pyserve.config.logs import LogSettings
from pyserve.observe.failures import TracebackFilter, failure_logger
from pyserve.observe.logs.kept import keeping_nothing
from pyserve.observe.logs.sink import log_to_standard_error
from pyserve.replica.logs import ReplicaLogs

TO_STDERR: dict[str, Any] = {"class": "logging.StreamHandler"}
BEFORE = failure_logger("pyserve.test_kept.before")


def config(**more: Any) -> dict[str, Any]:
    root = {"handlers": ["h"], "level": "WARNING"}
    return {"version": 1, "handlers": {"h": TO_STDERR}, "root": root, **more}


def by_dict() -> None:
    logging.config.dictConfig(config())


def by_dict_without_handlers() -> None:
    logging.config.dictConfig({"version": 1})


def by_dict_that_names_pyserve() -> None:
    logging.config.dictConfig(config(loggers={"pyserve": {"handlers": ["h"], "propagate": False}}))


def by_dict_that_names_one_logger_of_pyserve() -> None:
    logging.config.dictConfig(config(loggers={"pyserve.access": {"level": "INFO"}}))


def by_file() -> None:
    text = """
        [loggers]
        keys=root
        [handlers]
        keys=h
        [formatters]
        keys=
        [logger_root]
        handlers=h
        level=ERROR
        [handler_h]
        class=StreamHandler
        args=(sys.stdout,)
    """
    logging.config.fileConfig(io.StringIO("\n".join(each.strip() for each in text.splitlines())))


def by_force() -> None:
    logging.basicConfig(force=True)


def by_hand() -> None:
    logging.getLogger().handlers.clear()
    for each in list(logging.getLogger().manager.loggerDict.values()):
        if isinstance(each, logging.Logger):
            each.disabled = True


def by_disabling_all() -> None:
    logging.disable(logging.CRITICAL)


WAYS = [
    by_disabling_all,
    by_dict,
    by_dict_without_handlers,
    by_dict_that_names_pyserve,
    by_dict_that_names_one_logger_of_pyserve,
    by_file,
    by_force,
    by_hand,
]


class Output:
    """What this process has written to its standard streams."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += "".join(self._capsys.readouterr())
        return self._text


@pytest.fixture
def standard_error(capsys: pytest.CaptureFixture[str]) -> Iterator[Output]:
    """Let a test set logging up as a replica does: in its body, where output is captured."""
    for each in BEFORE.filters:
        assert isinstance(each, TracebackFilter)
        each.forget()
    others = {
        each: (each.disabled, each.propagate, each.handlers[:], each.level)
        for each in logging.getLogger().manager.loggerDict.values()
        if isinstance(each, logging.Logger)
    }
    with keeping_nothing():
        logging.getLogger().handlers.clear()
        yield Output(capsys)
        logging.disable(logging.NOTSET)
    for logger, state in others.items():
        logger.disabled, logger.propagate, logger.handlers[:], level = state
        logger.setLevel(level)


def fail(logger: logging.Logger, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("it raised")


@pytest.mark.parametrize("configure", WAYS)
def test_a_traceback_is_written_once(configure: Callable[[], None], standard_error: Output) -> None:
    log_to_standard_error()
    configure()
    fail(BEFORE, "known before")
    fail(failure_logger(f"pyserve.test_kept.after_{configure.__name__}"), "made later")

    text = standard_error.getvalue()
    for needle in ("known before", "made later"):
        assert 1 == text.count(f"ValueError: {needle}")
    assert text.startswith("E ")


@pytest.mark.parametrize("configure", WAYS)
def test_loggers_that_are_made_before_are_kept_at_the_second_time_too(
    configure: Callable[[], None], standard_error: Output
) -> None:
    log_to_standard_error()
    configure()
    later = failure_logger(f"pyserve.test_kept.later_{configure.__name__}")
    configure()
    fail(later, "made between")
    assert 1 == standard_error.getvalue().count("ValueError: made between")


@pytest.mark.parametrize("configure", WAYS)
def test_notices_of_pyserve_keep_their_level(
    configure: Callable[[], None], standard_error: Output
) -> None:
    log_to_standard_error()
    configure()
    logging.getLogger("pyserve.test_kept.notice").info("it is ready")
    assert 1 == standard_error.getvalue().count("it is ready")


def test_a_level_for_pyserve_is_obeyed(standard_error: Output) -> None:
    log_to_standard_error()
    logging.config.dictConfig(config(loggers={"pyserve": {"level": "ERROR"}}))
    logging.getLogger("pyserve.test_kept.quiet").warning("not wanted")
    logging.getLogger("pyserve.test_kept.quiet").error("wanted")
    text = standard_error.getvalue()
    assert "not wanted" not in text
    assert 1 == text.count("wanted")


def test_handlers_of_user_code_get_what_pyserve_logs(standard_error: Output) -> None:
    """What goes elsewhere than to the standard streams: a file, a collector."""
    log_to_standard_error()
    collected = io.StringIO()
    logging.basicConfig(force=True, stream=collected)
    fail(BEFORE, "for the collector")
    assert 1 == collected.getvalue().count("ValueError: for the collector")
    assert 1 == standard_error.getvalue().count("ValueError: for the collector")


def test_basic_config_of_user_code_is_obeyed(standard_error: Output) -> None:
    log_to_standard_error()
    logging.basicConfig(level=logging.DEBUG, format="shop says %(levelname)s: %(message)s")
    logging.getLogger("shop").debug("opened")
    logging.basicConfig(format="too late %(message)s")
    logging.getLogger("shop").info("sold out")
    fail(BEFORE, "as before")
    text = standard_error.getvalue()
    assert ["shop says DEBUG: opened", "shop says INFO: sold out"] == text.splitlines()[:2]
    assert 1 == text.count("ValueError: as before") == text.count("opened")
    assert 1 == text.count("sold out")
    assert "shop says ERROR: it raised" not in text


def test_basic_config_with_wrong_arguments_changes_nothing(standard_error: Output) -> None:
    log_to_standard_error()
    with pytest.raises(ValueError, match="nonsense"):
        logging.basicConfig(nonsense=1)  # type: ignore[call-overload]
    logging.getLogger("shop").error("sold out")
    assert 1 == standard_error.getvalue().count("sold out")


@pytest.mark.parametrize("arguments", [{"nonsense": 1}, {"handlers": []}])
def test_basic_config_brings_back_no_handler(
    standard_error: Output, arguments: dict[str, Any]
) -> None:
    log_to_standard_error()
    logging.getLogger().handlers.clear()
    with contextlib.suppress(ValueError):
        logging.basicConfig(**arguments)
    assert [] == logging.getLogger().handlers


@pytest.mark.parametrize("name", [None, "shop", "shop.till"])
def test_a_line_that_user_code_shows_itself_is_shown_once(
    standard_error: Output, name: str | None
) -> None:
    log_to_standard_error()
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("shown: %(message)s"))
    logging.getLogger(name).addHandler(shown)
    try:
        logging.getLogger("shop.till").warning("sold out")
        logging.getLogger("elsewhere").warning("closed")
        fail(BEFORE, "ours")
    finally:
        logging.getLogger(name).removeHandler(shown)
    text = standard_error.getvalue()
    assert (1, 1) == (text.count("sold out"), text.count("shown: sold out"))
    assert (1, int(name is None)) == (text.count("closed"), text.count("shown: closed"))
    assert 1 == text.count("ValueError: ours")


def test_a_line_that_user_code_also_keeps_elsewhere_is_shown(standard_error: Output) -> None:
    log_to_standard_error()
    kept = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(kept))
    logging.getLogger("shop").warning("sold out")
    assert 1 == kept.getvalue().count("sold out") == standard_error.getvalue().count("sold out")


def test_a_collector_around_the_method_of_loggers_gets_each_record(
    standard_error: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[str] = []
    before = logging.Logger.callHandlers

    def collect(self: logging.Logger, record: logging.LogRecord) -> None:
        before(self, record)
        collected.append(f"{record.name}: {record.getMessage()}")

    log_to_standard_error()
    monkeypatch.setattr(logging.Logger, "callHandlers", collect)
    fail(failure_logger("pyserve.test_kept.collected"), "seen")
    logging.getLogger("shop").error("sold out")
    assert ["pyserve.test_kept.collected: it raised", "shop: sold out"] == collected
    text = standard_error.getvalue()
    assert 1 == text.count("ValueError: seen") == text.count("sold out")


def test_what_disables_all_loggers_silences_those_of_user_code(standard_error: Output) -> None:
    log_to_standard_error()
    logging.disable(logging.ERROR)
    logging.getLogger("shop").error("sold out")
    logging.getLogger("pyserve.test_kept.told").warning("told")
    logging.getLogger("pyserve.test_kept.told").debug("too much")
    text = standard_error.getvalue()
    assert ("told" in text, "sold out" in text, "too much" in text) == (True, False, False)


def test_loggers_of_user_code_are_what_they_would_be(standard_error: Output) -> None:
    log_to_standard_error()
    logger = logging.getLogger("test_kept.user")
    assert logging.getLoggerClass() is type(logger)
    by_dict()
    logger.error("it was disabled")
    logging.getLogger("test_kept.user_later").error("it was not")
    assert "it was disabled" not in standard_error.getvalue()
    assert 1 == standard_error.getvalue().count("it was not")


@pytest.mark.parametrize("configure", WAYS)
def test_the_file_of_a_replica_goes_on(
    configure: Callable[[], None], standard_error: Output, tmp_path: Path
) -> None:
    """``dictConfig`` closes every handler that there is."""
    log_to_standard_error()
    logs = ReplicaLogs("shop", "Model", "Model#abcde", LogSettings())
    logs.follow(LoggingConfig(logs_dir=str(tmp_path), encoding="JSON"))
    try:
        fail(BEFORE, "first")
        configure()
        logging.getLogger("pyserve.test_kept.file").error("second")
        logs.follow(LoggingConfig(logs_dir=str(tmp_path), log_level="WARNING"))
        logging.getLogger("pyserve.test_kept.file").info("third")
    finally:
        logs.close()
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert (1, 1, 0) == (text.count("first"), text.count("second"), text.count("third"))
    assert "second" in standard_error.getvalue()
