"""Options of ``pyserve haproxy-config`` that make no sense are refused before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pyserve.cli.haproxy_config import haproxy_config
from pyserve.errors import MeshNotFound, OptionError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no mesh run here."""
    monkeypatch.setenv("PYSERVE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--watch"], "name it with --output FILE"),
        (["--master-socket", "/m"], "--master-socket reloads HAProxy, whose file has to be named"),
        (["--pid-file", "/p"], "--pid-file reloads HAProxy, whose file has to be named"),
        (["--output", "o", "--master-socket", "/m", "--pid-file", "/p"], "one of them reloads"),
        (["--server-name", "mesh"], "need --server-ca FILE"),
        (["--bind", "127.0.0.1:0"], "HAProxy picks no port"),
        (["--bind", "*:0"], "HAProxy picks no port"),
        (["--interval", "0"], "'--interval'"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], told: str) -> None:
    found = CliRunner().invoke(haproxy_config, arguments)
    assert 2 == found.exit_code
    assert told in found.output


@pytest.mark.parametrize("address", ["nowhere", "*:http", "127.0.0.1:99999", "*", "a b:80"])
def test_an_address_that_is_none_is_told(address: str) -> None:
    found = CliRunner().invoke(haproxy_config, ["--bind", address])
    assert isinstance(found.exception, OptionError)
    assert "--bind" in str(found.exception)


def test_there_has_to_be_a_mesh() -> None:
    found = CliRunner().invoke(haproxy_config, [])
    assert isinstance(found.exception, MeshNotFound)
    assert "no mesh runs here" in str(found.exception)
