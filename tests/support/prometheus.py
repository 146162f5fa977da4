"""The real Prometheus, and promtool, from the distribution."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.waiting import wait_until

_TIMEOUT_S = 30.0


def why_not(program: str = "prometheus") -> str | None:
    """Say why it cannot be used here; None if it can."""
    found = shutil.which(program)
    return None if found else f"{program} is not installed (apt-get install prometheus)"


def promtool(*arguments: str) -> str:
    """Return what promtool says; fail if it finds something wrong."""
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """One that runs."""

    def __init__(self, address: str) -> None:
        self._api = httpx.Client(
            base_url=f"http://{address}/api/v1", timeout=_TIMEOUT_S, trust_env=False
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        answer = self._api.get("/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """Return the sum of the samples of an expression; 0: there is none."""
        return sum(float(each["value"][1]) for each in self.query(expression))

    def names(self) -> set[str]:
        """Return the names of all metrics."""
        return set(self._api.get("/label/__name__/values").json()["data"])

    def targets(self) -> list[dict[str, Any]]:
        """Return what it scrapes."""
        found: list[dict[str, Any]] = self._api.get("/targets").json()["data"]["activeTargets"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules of all groups."""
        groups = self._api.get("/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """Return the exemplars of an expression of the last hour."""
        times = {"start": "0", "end": "4102444800"}
        answer = self._api.get("/query_exemplars", params={"query": expression, **times}).json()
        found: list[dict[str, Any]] = answer["data"]
        return found

    def is_ready(self) -> bool:
        """Return whether it answers."""
        try:
            return self._api.get("/query", params={"query": "1"}).status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        """Let go of it."""
        self._api.close()


@contextmanager
def running(config: Path) -> Iterator[Prometheus]:
    """Run it with a configuration until the block ends, at any free port."""
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={config.parent / 'data'}",
                "--web.listen-address=127.0.0.1:0",
                "--enable-feature=exemplar-storage",
                "--log.level=info",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = None
    try:
        wait_until(lambda: process.poll() is not None or _address(process.pid), _TIMEOUT_S)
        assert process.poll() is None, log.read_text()
        found = Prometheus(_address(process.pid))
        wait_until(found.is_ready, _TIMEOUT_S, "Prometheus answers")
        yield found
    except BaseException as error:
        error.add_note(log.read_text(errors="replace")[-5000:])
        raise
    finally:
        if found is not None:
            found.close()
        process.send_signal(signal.SIGTERM)
        process.wait(_TIMEOUT_S)


def _address(pid: int) -> str:
    """Return where a process listens, "" before: it picks a port and does not report it."""
    import psutil

    for each in psutil.Process(pid).net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN:
            return f"{each.laddr.ip}:{each.laddr.port}"
    return ""
