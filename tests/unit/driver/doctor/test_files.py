"""The home, the token and the certificates of a mesh, with faults that are staged."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyserve.config import read_settings
from pyserve.driver.doctor import check_certificates, check_home, check_token
from pyserve.driver.doctor_mesh import Finding, State
from tests.support.authority import Authority

DAY_S = 86_400
TOKEN = "ab" * 32


def settings(home: Path, **variables: str) -> Any:
    return read_settings({"PYSERVE_HOME": str(home), **variables})


def only(found: Iterator[Finding]) -> Finding:
    (one,) = found
    return one


def test_a_home_that_is_missing_or_private_is_fine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert State.OK is only(check_home(settings(home))).state
    home.mkdir(mode=0o700)
    assert State.OK is only(check_home(settings(home))).state


def test_a_home_that_others_may_look_into_is_told(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    found = only(check_home(settings(home)))
    assert (State.NOTICE, f"chmod 700 {home}") == (found.state, found.remedy)


def test_a_home_that_others_may_write_to_is_wrong(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    found = only(check_home(settings(home)))
    assert State.WRONG is found.state
    assert "PYSERVE_HOME" in found.remedy


@pytest.mark.parametrize(
    ("mode", "text", "state"),
    [
        (0o600, TOKEN, State.OK),
        (0o644, TOKEN, State.WRONG),
        (0o660, TOKEN, State.WRONG),
        (0o600, "no token", State.WRONG),
        (0o600, None, State.WRONG),
    ],
)
def test_a_token_that_others_can_read_or_nobody_can_use_is_wrong(
    tmp_path: Path, mode: int, text: str | None, state: State
) -> None:
    token = tmp_path / "token"
    if text is not None:
        token.write_text(text)
        token.chmod(mode)
    found = only(check_token(settings(tmp_path, PYSERVE_TOKEN_FILE=str(token))))
    assert state is found.state
    assert TOKEN not in found.text + found.remedy
    assert (state is State.OK) == (found.remedy == "")


def test_where_no_mesh_runs_no_token_is_missed(tmp_path: Path) -> None:
    assert [] == list(check_token(settings(tmp_path)))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def certificates(folder: Path, authority: Authority, days: float, **leaf: Any) -> dict[str, str]:
    made = authority.issue("localhost", lifetime=datetime.timedelta(days=days), **leaf)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.chain)
    key.write_bytes(made.key)
    key.chmod(0o600)
    return {"PYSERVE_TLS_CERT_FILE": str(cert), "PYSERVE_TLS_KEY_FILE": str(key)}


@pytest.mark.parametrize(
    ("later_days", "state", "word"),
    [
        (0, State.OK, "last for 99 days"),
        (90, State.NOTICE, "valid for 9 days yet"),
        (101, State.WRONG, "was valid until"),
        (-1, State.WRONG, "not valid before"),
    ],
)
def test_the_days_that_certificates_have_left_are_told(
    tmp_path: Path, authority: Authority, later_days: float, state: State, word: str
) -> None:
    variables = certificates(tmp_path, authority, 100)
    now = time.time() + later_days * DAY_S
    found = only(check_certificates(settings(tmp_path, **variables), now))
    assert state is found.state
    assert word in found.text
    assert str(tmp_path / "cert.pem") in found.text


def test_files_that_do_not_belong_together_are_wrong(tmp_path: Path, authority: Authority) -> None:
    variables = certificates(tmp_path, authority, 100)
    (tmp_path / "key.pem").write_bytes(authority.issue("localhost").key)
    found = only(check_certificates(settings(tmp_path, **variables)))
    assert State.WRONG is found.state


def test_a_key_that_everybody_can_read_is_wrong(tmp_path: Path, authority: Authority) -> None:
    variables = certificates(tmp_path, authority, 100)
    (tmp_path / "key.pem").chmod(0o644)
    found = {each.state: each for each in check_certificates(settings(tmp_path, **variables))}
    assert "chmod 600" in found[State.WRONG].remedy
