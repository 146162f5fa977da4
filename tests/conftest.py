"""Fixtures of all tests: a home of their own, and nothing left behind."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from pyserve.garbage import importing
from pyserve.observe.failures import TracebackFilter
from tests.support import warm
from tests.support.grpc_aio import keep_status_of_server
from tests.support.leftovers import SESSION_VARIABLE, processes_of, sockets_below
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.scheduling import BySharedFixtures

# `fast` repeats the same cases on each run; HYPOTHESIS_PROFILE=slow looks for new ones.
hypothesis.settings.register_profile("fast", max_examples=100, deadline=None, derandomize=True)
hypothesis.settings.register_profile("slow", max_examples=5000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

_LEFTOVERS_TIMEOUT_S = 30.0

keep_status_of_server()


@pytest.fixture(scope="session", autouse=True)
def pyserve_home() -> Iterator[Path]:
    """Run the session in a home of its own; at its end no process and no socket is left.

    The folder's path is short, because the path of a Unix socket has room for 107 bytes.
    """
    home = Path(tempfile.mkdtemp(prefix="pyserve-test-", dir="/tmp"))
    session = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PYSERVE_")]:
            patch.delenv(name)
        patch.setenv("PYSERVE_HOME", str(home))
        patch.setenv(SESSION_VARIABLE, session)
        yield home
    warm.end()
    try:
        wait_until(
            lambda: not processes_of(session), _LEFTOVERS_TIMEOUT_S, "no process of a test is left"
        )
        assert [] == sockets_below(home)
    except AssertionError as error:
        raise AssertionError(f"{error}\nleft: {processes_of(session)}") from None
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Let no test hear more or less of the log than it would alone."""
    loggers = [logging.getLogger(), logging.getLogger("pyserve")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.fixture(autouse=True)
def first_failures() -> None:
    """Let each test see the tracebacks that another test has had logged a moment ago."""
    for logger in logging.root.manager.loggerDict.values():
        for limiter in getattr(logger, "filters", ()):
            if isinstance(limiter, TracebackFilter):
                limiter.forget()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among modules and tests, which stay: a fifth of the time until the first.

    Tests that collect garbage do not walk through them either.
    """
    with importing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let reports cross to the process that collects them: as UTF-8, whatever a test logged."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySharedFixtures | None:
    """With ``--dist loadfile``, keep tests that share a mesh in one process, too."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.scheduling import BySharedFixtures

    return BySharedFixtures(config, log)
