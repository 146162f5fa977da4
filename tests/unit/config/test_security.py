"""Where certificates are, and what an access file may say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pyserve.config import HTTPOptions, read_settings
from pyserve.config.ingress import environment_of
from pyserve.config.tls import TlsFiles
from pyserve.errors import OptionError
from pyserve.gateway.security import OPEN_PATHS, RuleSettings, read_access_file

TOKEN = "0123456789abcdef"
HASH = hashlib.sha256(TOKEN.encode()).digest()


def write(folder: Path, text: str) -> Path:
    file = folder / "access.yaml"
    file.write_text(text)
    return file


def test_without_variables_everything_is_plain_and_open() -> None:
    settings = read_settings({})
    assert settings.security.tls is None
    assert settings.security.access_file is None
    assert settings.node.tls is None


def test_the_variables_of_the_ingress_name_its_files() -> None:
    security = read_settings(
        {
            "PYSERVE_TLS_CERT_FILE": "/tls/crt",
            "PYSERVE_TLS_KEY_FILE": "/tls/key",
            "PYSERVE_TLS_CA_FILE": "/tls/ca",
            "PYSERVE_TLS_CLIENT_NAMES": "a.example.com, spiffe://mesh/*",
            "PYSERVE_ACCESS_FILE": "/access.yaml",
        }
    ).security
    assert security.tls == TlsFiles(
        cert_file=Path("/tls/crt"),
        key_file=Path("/tls/key"),
        ca_file=Path("/tls/ca"),
        names=("a.example.com", "spiffe://mesh/*"),
        peers_required=True,
    )
    assert security.access_file == Path("/access.yaml")


@pytest.mark.parametrize(
    ("address", "is_this_machine"),
    [
        *(("unix:/run/c.sock", True), ("127.0.0.1:7000", True), ("127.8.0.1:1", True)),
        *(("[::1]:7000", True), ("localhost:7000", True), ("10.0.0.5:7000", False)),
        *(("controller:7000", False), ("localhost.example.com:7000", False)),
        *(("[2001:db8::1]:7000", False), ("0.0.0.0:7000", False), ("[::]:7000", False)),
    ],
)
def test_the_mesh_token_leaves_this_machine_by_tls_or_where_it_is_allowed(
    address: str, is_this_machine: bool
) -> None:
    tls = {f"PYSERVE_MESH_TLS_{name}_FILE": f"/{name}" for name in ("CERT", "KEY", "CA")}
    assert is_this_machine == read_settings({}).node.may_carry_token(address)
    assert read_settings(tls).node.may_carry_token(address)
    assert read_settings({"PYSERVE_MESH_PLAIN_TCP": "1"}).node.may_carry_token(address)


@pytest.mark.parametrize(("value", "required"), [("", True), ("optional", False)])
def test_client_certificates_are_required_unless_told_otherwise(value: str, required: bool) -> None:
    variables = {f"PYSERVE_TLS_{name}_FILE": "/x" for name in ("CERT", "KEY", "CA")}
    tls = read_settings({**variables, "PYSERVE_TLS_CLIENT_CERT": value}).security.tls
    assert tls is not None
    assert required == tls.peers_required


def test_options_of_the_driver_end_in_the_same_settings() -> None:
    options = HTTPOptions(ssl_certfile="/crt", ssl_keyfile="/key", ssl_ca_certs="/ca")
    tls = read_settings(environment_of(options, None)).security.tls
    assert tls == TlsFiles(cert_file=Path("/crt"), key_file=Path("/key"), ca_file=Path("/ca"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["TLS_CERT_FILE"], "needs both PYSERVE_TLS_CERT_FILE and PYSERVE_TLS_KEY_FILE"),
        (["TLS_CA_FILE"], "PYSERVE_TLS_CA_FILE set"),
        (["TLS_CLIENT_NAMES"], "PYSERVE_TLS_CLIENT_NAMES set"),
        (["TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CLIENT_NAMES"], "without PYSERVE_TLS_CA_FILE"),
        (["TLS_CLIENT_CERT"], "'required', 'optional'"),
        (["MESH_TLS_CERT_FILE", "MESH_TLS_KEY_FILE"], "without PYSERVE_MESH_TLS_CA_FILE"),
    ],
)
def test_variables_that_need_others_say_so(names: list[str], expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_settings({f"PYSERVE_{name}": "x" for name in names})
    assert expected in str(caught.value)


def test_an_access_file_becomes_rules(tmp_path: Path) -> None:
    (tmp_path / "one.token").write_text(f"{TOKEN}\n")
    file = write(
        tmp_path,
        f"""
        open: [reflection]
        rules:
          - name: shop
            paths: [/shop.Cart/*]
            identities: ["spiffe://mesh/*"]
            tokens: ["sha256:{HASH.hex()}", {{token_file: one.token}}]
          - paths: [/public/**]
            applications: [pages, site]
            anonymous: true
        """,
    )
    settings = read_access_file(file)
    assert not settings.default_allow
    assert settings.files == (file, tmp_path / "one.token")
    assert settings.rules == (
        RuleSettings(name="open reflection", paths=OPEN_PATHS["reflection"], anonymous=True),
        RuleSettings(
            name="shop",
            paths=("/shop.Cart/*",),
            identities=("spiffe://mesh/*",),
            token_hashes=(HASH, HASH),
        ),
        RuleSettings(
            name="rules[1]",
            paths=("/public/**",),
            applications=("pages", "site"),
            anonymous=True,
        ),
    )


def test_an_empty_access_file_lets_nobody_in(tmp_path: Path) -> None:
    settings = read_access_file(write(tmp_path, ""))
    assert not settings.default_allow
    assert settings.rules == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a", "access.yaml=['a'] is not allowed; allowed: a mapping"),
        ("rules: [", "access.yaml:1: this is no YAML"),
        ("rule: []", "rule is not allowed; allowed: default, open, rules"),
        ("default: maybe", "default='maybe' is not allowed; allowed: 'deny', 'allow'"),
        ("open: [everything]", "open='everything' is not allowed; allowed: 'health'"),
        ("rules: {}", "rules={} is not allowed; allowed: a list"),
        ("rules: [{path: /a}]", "rules[0].path is not allowed; allowed: name, paths"),
        ("rules: [{anonymous: true}]", "rules[0].paths=() is not allowed"),
        ("rules: [{paths: [1]}]", "rules[0].paths[0]=1 is not allowed"),
        ("rules: [{paths: [/a], applications: shop}]", "rules[0].applications='shop' is not"),
        ("rules: [{paths: [/a], anonymous: 1}]", "rules[0].anonymous=1 is not allowed"),
        ("rules: [{paths: [/a], identities: x}]", "rules[0].identities='x' is not allowed"),
        ("rules: [{paths: [/a], tokens: [{token_file: gone}]}]", "gone cannot be read"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read_access_file(write(tmp_path, text))
    assert str(tmp_path) in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("token", ["my-secret-token", "sha256:my-secret-token"])
def test_a_token_in_the_place_of_its_hash_is_refused_and_not_repeated(
    tmp_path: Path, token: str
) -> None:
    file = write(tmp_path, f"rules: [{{paths: [/a], tokens: ['{token}']}}]")
    with pytest.raises(OptionError) as caught:
        read_access_file(file)
    assert "rules[0].tokens[0] is not allowed" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "my-secret", "my secret with several words"])
def test_a_weak_token_in_a_file_is_refused_and_not_repeated(tmp_path: Path, token: str) -> None:
    (tmp_path / "one.token").write_text(token)
    file = write(tmp_path, "rules: [{paths: [/a], tokens: [{token_file: one.token}]}]")
    with pytest.raises(OptionError) as caught:
        read_access_file(file)
    assert "at least 16 characters" in str(caught.value)
    assert "secret" not in str(caught.value)
