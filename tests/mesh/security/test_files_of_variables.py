"""Files that variables name and nobody can use: the error says which variable, and what to do."""

import os
from pathlib import Path

import pytest

from tests.mesh.commands import pyserve
from tests.mesh.security.test_command_line import write
from tests.support.authority import Authority

TARGET = "tests.mesh.apps.small:app"


def refused(environment: dict[str, str], **variables: str) -> str:
    done = pyserve(
        "run", TARGET, "--address", "127.0.0.1:0", environment={**environment, **variables}
    )
    assert 1 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return error


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["CERT", "KEY", "CA"])
def test_a_missing_certificate_is_told_with_its_variable(
    broken: str, mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    cert, key = write(Authority().issue("127.0.0.1"), tmp_path, "server")
    files = {"CERT": cert, "KEY": key, "CA": cert, broken: "/no/such/file"}
    variables = {f"PYSERVE_TLS_{name}_FILE": file for name, file in files.items()}

    error = refused(mesh_environment, **variables)

    assert f"/no/such/file (PYSERVE_TLS_{broken}_FILE) cannot be read: No such file" in error
    assert "give the path of a PEM file" in error


@pytest.mark.slow
def test_what_is_no_certificate_is_told_with_its_variable(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    _, key = write(Authority().issue("127.0.0.1"), tmp_path, "server")
    error = refused(mesh_environment, PYSERVE_TLS_CERT_FILE=__file__, PYSERVE_TLS_KEY_FILE=key)

    assert "no PEM certificate in it" in error
    assert f"certificate chain: {__file__} in PYSERVE_TLS_CERT_FILE" in error


@pytest.mark.slow
def test_a_missing_access_file_is_told_with_its_variable(mesh_environment: dict[str, str]) -> None:
    error = refused(mesh_environment, PYSERVE_ACCESS_FILE="/no/rules.yaml")

    assert "/no/rules.yaml cannot be read: No such file or directory; give the path" in error
    assert "(PYSERVE_ACCESS_FILE has the access rules" in error
    assert 1 == error.count("/no/rules.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rulez: []", "rulez is not allowed"),
        ("rules: [", "this is no YAML"),
        ('rules: [{paths: ["/*"], tokens: [{token_file: none}]}]', "none cannot be read"),
    ],
)
def test_an_access_file_is_named_once_whatever_is_wrong(
    mesh_environment: dict[str, str], tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    error = refused(mesh_environment, PYSERVE_ACCESS_FILE=os.fspath(file))

    assert told in error
    assert "(PYSERVE_ACCESS_FILE" in error
    assert 1 == error.count(os.fspath(file))


@pytest.mark.slow
def test_a_log_folder_that_cannot_be_one_is_told_with_its_variable(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    error = refused(mesh_environment, PYSERVE_LOG_DIR=os.fspath(file / "logs"))

    assert f"PYSERVE_LOG_DIR={file}/logs cannot be written: Not a directory; " in error
    assert 1 == error.count(os.fspath(file))
    assert "name a folder in which this user may write" in error
