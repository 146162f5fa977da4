"""TLS by options of the command line, from both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mesh.commands import foreground, pyserve
from tests.support.authority import Authority, Leaf
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

ECHO = "services.echo.Echo/Echo"
TARGET = "tests.mesh.apps.small:app"


def write(leaf: Leaf, folder: Path, name: str) -> tuple[str, str]:
    """Write certificate and key into files; return their paths."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(leaf.chain)
    key.write_bytes(leaf.key)
    return str(cert), str(key)


def test_run_and_call_speak_tls_with_each_other(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    authority = Authority()
    root = tmp_path / "root.crt"
    root.write_bytes(authority.certificate)
    cert, key = write(authority.issue("127.0.0.1", "echo.example.com"), tmp_path, "server")
    own_cert, own_key = write(authority.issue("spiffe://test/client/alice"), tmp_path, "client")
    own = ("--cert", own_cert, "--key", own_key)

    def call(*options: str) -> tuple[int, str]:
        arguments = ("call", ECHO, "payload=you", *options)
        done = pyserve(*arguments, environment=mesh_environment)
        return done.returncode, done.stdout + done.stderr

    options = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(root))
    with foreground(mesh_environment, TARGET, *options) as running:
        # It comes after what says that the mesh is ready.
        hint = "try `pyserve call --tls services.echo.Echo/METHOD"
        wait_until(lambda: hint in running.output())
        code, text = call("--ca", str(root), *own)
        assert (0, True) == (code, text.startswith('{"payload"')), text
        code, text = call("--ca", str(root), *own, "--server-name", "echo.example.com")
        assert 0 == code, text
        for arguments, says in [
            ((), "speaks TLS; add --tls, and --ca FILE"),
            (("--address", running.address), "add --tls if it speaks TLS"),
            (("--ca", str(root)), "give one with --cert and --key"),
            (("--tls", *own), "comes from no root that the system knows"),
            (("--ca", str(root), *own, "--server-name", "other.example.com"), "--server-name"),
        ]:
            code, text = call(*arguments)
            assert (1, True) == (code, says in text), (arguments, text)
            assert "Traceback" not in text


@pytest.mark.parametrize("mode", [(), ("--in-process",)])
def test_names_in_a_variable_hold_for_files_of_options(
    mode: tuple[str, ...], mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    authority = Authority()
    root = tmp_path / "root.crt"
    root.write_bytes(authority.certificate)
    cert, key = write(authority.issue("127.0.0.1"), tmp_path, "server")
    options = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(root))
    environment = {**mesh_environment, "PYSERVE_TLS_CLIENT_NAMES": "spiffe://test/client/alice"}
    with foreground(environment, TARGET, *mode, *options) as running:
        for name, expected in [("alice", 0), ("mallory", 1)]:
            own = write(authority.issue(f"spiffe://test/client/{name}"), tmp_path, name)
            call = ("call", ECHO, "payload=you", "--address", running.address, "--ca", str(root))
            done = pyserve(*call, "--cert", own[0], "--key", own[1], environment=mesh_environment)
            assert expected == done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("by_options", [True, False])
def test_one_process_speaks_tls_too(
    by_options: bool, mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    authority = Authority()
    root = tmp_path / "root.crt"
    root.write_bytes(authority.certificate)
    cert, key = write(authority.issue("127.0.0.1"), tmp_path, "server")
    options = ("--tls-cert", cert, "--tls-key", key) if by_options else ()
    variables = {"PYSERVE_TLS_CERT_FILE": cert, "PYSERVE_TLS_KEY_FILE": key}
    environment = mesh_environment if by_options else {**mesh_environment, **variables}
    with foreground(environment, TARGET, "--in-process", *options) as running:
        wait_until(lambda: "try `pyserve call --tls" in running.output())
        call = ("call", ECHO, "payload=you", "--address", running.address)
        done = pyserve(*call, "--ca", str(root), environment=mesh_environment)
        assert 0 == done.returncode, done.stderr
        assert 1 == pyserve(*call, environment=mesh_environment).returncode


def test_one_process_refuses_certificates_that_cannot_be_used(
    mesh_environment: dict[str, str],
) -> None:
    options = ("--in-process", "--tls-cert", __file__, "--tls-key", __file__)
    done = pyserve("run", TARGET, *options, environment=mesh_environment)
    assert (2, True) == (done.returncode, "no PEM certificate in it" in done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_run_cannot_give_the_mesh_certificates(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    cert, key = write(Authority().issue("127.0.0.1"), tmp_path, "server")
    with foreground(mesh_environment):
        second = pyserve(
            *("run", TARGET, "--name", "other", "--tls-cert", cert, "--tls-key", key),
            environment=mesh_environment,
        )
        variables = {"PYSERVE_TLS_CERT_FILE": cert, "PYSERVE_TLS_KEY_FILE": key}
        third = pyserve(
            *("run", "tests.mesh.apps.broken:Misspelt", "--name", "broken"),
            environment={**mesh_environment, **variables},
        )
    assert (1, True) == (second.returncode, "a mesh runs already" in second.stderr), second.stderr
    assert "what these options set (--tls-cert, --tls-key) acts" in second.stderr
    assert "PYSERVE_TLS" not in second.stderr
    assert "PYSERVE_TLS_CERT_FILE has no effect" in third.stderr


@pytest.mark.parametrize("mode", [(), ("--in-process",)])
@pytest.mark.parametrize(
    ("cert", "key", "ca", "says"),
    [
        ("server.crt", "other.key", None, "the private key: it does not belong to the certificate"),
        ("server.key", "server.crt", None, "the certificate chain: no PEM certificate in it"),
        ("server.crt", "server.key", "other.key", "root certificates: no PEM certificate in it"),
    ],
)
def test_certificates_that_cannot_be_used_are_told_with_their_options(
    mode: tuple[str, ...],
    cert: str,
    key: str,
    ca: str | None,
    says: str,
    mesh_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    for name in ("server", "other"):
        write(Authority().issue("127.0.0.1"), tmp_path, name)
    options = {"--tls-cert": cert, "--tls-key": key, "--tls-client-ca": ca}
    files = {option: str(tmp_path / name) for option, name in options.items() if name}
    arguments = [word for pair in files.items() for word in pair]
    done = pyserve("run", TARGET, *mode, *arguments, environment=mesh_environment)
    assert (2, True) == (done.returncode, says in done.stderr), done.stderr
    for option, path in files.items():
        assert f"{path} in {option}" in done.stderr
    assert "PYSERVE_TLS" not in done.stderr


def test_roots_of_a_variable_beside_options_are_told_with_the_variable(
    mesh_environment: dict[str, str], tmp_path: Path
) -> None:
    cert, key = write(Authority().issue("127.0.0.1"), tmp_path, "server")
    environment = {**mesh_environment, "PYSERVE_TLS_CA_FILE": "/no/such/file"}
    options = ("--tls-cert", cert, "--tls-key", key)
    done = pyserve("run", TARGET, *options, environment=environment)
    assert 2 == done.returncode
    assert "/no/such/file (PYSERVE_TLS_CA_FILE) cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tls-cert", __file__), "TLS needs both --tls-cert and --tls-key"),
        (("--tls-client-ca", __file__), "TLS needs both --tls-cert and --tls-key"),
        (("--tls-cert", "/no/such/file", "--tls-key", __file__), "'/no/such/file' does not exist"),
    ],
)
def test_options_that_miss_something_are_wrong_usage(
    options: tuple[str, ...], says: str, mesh_environment: dict[str, str]
) -> None:
    done = pyserve("run", TARGET, *options, environment=mesh_environment)
    assert (2, True) == (done.returncode, says in " ".join(done.stderr.split())), done.stderr
