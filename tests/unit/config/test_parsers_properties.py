"""Whatever a user writes, a parser of settings takes it or refuses it by name."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from pyserve.config import check_address, read_settings
from pyserve.config import variables as read
from pyserve.config.http import check_root_path, check_route_prefix
from pyserve.errors import OptionError
from pyserve.gateway.security import read_access_file

NAME = "PYSERVE_X"
_TEXTS = st.one_of(
    st.text(max_size=30),
    st.from_regex(r"-?[0-9]{0,20}\.?[0-9]{0,5}(e[+-]?[0-9]{1,4})?(ms|s)?", fullmatch=True),
    st.sampled_from(["nan", "inf", "-inf", "1_000", "٣", "²", " 1 ", "0x10", "1e400", "-0"]),
    st.integers().map(str),
)


def taken(parse: Callable[[], object]) -> bool:
    """Whether a value is taken; a refusal is an ``OptionError`` and nothing else."""
    try:
        parse()
    except OptionError:
        return False
    return True


@given(_TEXTS)
@example("9" * 5000)  # Longer than what Python makes a number of by itself.
def test_numbers_of_variables(text: str):
    variables = {NAME: text}

    def time_s() -> None:
        found = read.seconds(variables, NAME, 1.0)
        assert 0 <= found < math.inf

    def duration_s() -> None:
        found = read.duration_seconds(variables, NAME, 1.0)
        assert 0 < found < math.inf

    def whole() -> None:
        assert read.whole(variables, NAME, minimum=3, maximum=70) in {None, *range(3, 71)}

    def size() -> None:
        found = read.size_bytes(variables, NAME, maximum=2**31)
        assert found is None or 1 <= found <= 2**31

    def number() -> None:
        assert 2 <= read.number(variables, NAME, 5.0, minimum=2) < math.inf

    for parse in (time_s, duration_s, whole, size, number):
        taken(parse)
    taken(lambda: read.limit_seconds(variables, NAME, None))
    assert taken(lambda: read.switch(variables, NAME)) is (text in ("", "0", "1"))


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_durations_say_the_same_in_both_units(time_s: float):
    for text, factor in ((repr(time_s), 1.0), (f"{time_s!r}s", 1.0), (f"{time_s!r}ms", 0.001)):
        found = read.duration_seconds({NAME: text}, NAME, 1.0)
        assert math.isclose(time_s * factor, found)


@given(st.integers(min_value=1, max_value=2**31))
def test_sizes_come_back(size: int):
    assert size == read.size_bytes({NAME: str(size)}, NAME, maximum=2**31)


@given(st.lists(st.text(st.characters(exclude_characters=","), min_size=1).map(str.strip)))
def test_words_come_back(words: list[str]):
    kept = tuple(word for word in words if word)
    assert kept == read.words({NAME: ", ".join(words)}, NAME)


@given(st.one_of(st.text(max_size=40), st.from_regex(r"[\[\]0-9a-f:.]{1,20}:[0-9]{1,6}")))
def test_addresses(text: str):
    if taken(lambda: check_address(NAME, text)):
        host, _, port = text.rpartition(":")
        assert host
        assert 0 <= int(port) <= 65535
    taken(lambda: check_address(NAME, text, unix=True))


@given(
    st.one_of(
        st.text(max_size=30).map(lambda text: "/" + text),
        st.from_regex(r"(/[A-Za-z0-9.%~\-{} ]{0,4}){1,4}", fullmatch=True),
        st.one_of(st.none(), st.integers(), st.binary(max_size=4)),
    )
)
def test_prefixes(value: object):
    if taken(lambda: check_route_prefix(NAME, value)) and value != "/":
        assert isinstance(value, str)
        segments = value.split("/")
        assert "" == segments[0]
        assert all(segments[1:]), "no segment is empty, so none is hidden behind another spelling"
        assert "-" != segments[1]
        assert not {".", ".."} & set(segments)
        assert taken(lambda: check_root_path(NAME, value))


_VARIABLES = [
    "PYSERVE_ADVERTISE_HOST",
    "PYSERVE_CONTROLLER",
    "PYSERVE_DIRECT_INGRESS",
    "PYSERVE_DIRECT_INGRESS_MIN_HTTP_PORT",
    "PYSERVE_EJECTION_INTERVAL_S",
    "PYSERVE_HTTP_MIDDLEWARES",
    "PYSERVE_INGRESS_CORS_ORIGINS",
    "PYSERVE_INGRESS_LOCATION",
    "PYSERVE_INGRESS_MAX_CONNECTIONS",
    "PYSERVE_INGRESS_ROOT_PATH",
    "PYSERVE_LOG_DIR",
    "PYSERVE_PROXY_PROTOCOL",
    "PYSERVE_ROUTER_MAX_BACKOFF_S",
    "PYSERVE_ROUTER_MAX_RETRIES",
    "PYSERVE_TLS_CERT_FILE",
    "PYSERVE_TLS_CLIENT_CERT",
    "PYSERVE_TRUSTED_PROXIES",
]


@given(st.dictionaries(st.sampled_from(_VARIABLES), _TEXTS, max_size=4))
def test_environments(variables: dict[str, str]):
    taken(lambda: read_settings(variables))


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10), st.dates()
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_RULES = st.fixed_dictionaries(
    {},
    optional={
        "name": _VALUES,
        "paths": st.one_of(_VALUES, st.lists(st.text(max_size=8), max_size=3)),
        "identities": _VALUES,
        "tokens": st.one_of(
            _VALUES, st.lists(st.fixed_dictionaries({"token_file": _VALUES}), max_size=2)
        ),
        "anonymous": _VALUES,
    },
)
_FILES = st.fixed_dictionaries(
    {},
    optional={
        "default": st.one_of(st.sampled_from(["allow", "deny"]), _VALUES),
        "open": st.one_of(st.just(["health"]), _VALUES),
        "rules": st.one_of(st.lists(_RULES, max_size=3), _VALUES),
    },
)


def read_access(content: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "access.yaml"
        file.write_bytes(content)
        return read_access_file(file)


@given(st.one_of(_FILES, _VALUES))
def test_access_files_of_any_shape(value: object):
    taken(lambda: read_access(yaml.safe_dump(value, allow_unicode=True).encode()))


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode())))
@example(b"default: 2001-99-99")  # A date that is none.
@example(b"default: !!int x")
@example(b"rules: " + b"[" * 5000)
@example(b'rules: [{paths: [/a], tokens: [{token_file: "a\\0b"}]}]')
@example(b"&a [*a]")
@example(b"default: " + b"9" * 5000)
def test_access_files_of_any_bytes(content: bytes):
    taken(lambda: read_access(content))


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_rules_come_back(paths: list[str], is_open: bool):
    rules = [{"name": "one", "paths": paths, "anonymous": is_open}]
    content = yaml.safe_dump({"default": "allow", "rules": rules}, allow_unicode=True)
    found = read_access(content.encode())
    (rule,) = found.rules  # type: ignore[attr-defined]
    assert (tuple(paths), is_open, "one") == (rule.paths, rule.anonymous, rule.name)


@pytest.mark.parametrize("text", ["²", "٣", "1e3", "+1", " 1"])
def test_only_plain_digits_are_whole_numbers(text: str):
    with pytest.raises(OptionError):
        read.whole({NAME: text}, NAME, minimum=0, maximum=2000)
