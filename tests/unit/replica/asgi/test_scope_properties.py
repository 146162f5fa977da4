"""Whatever head the native half lets through, an application gets a scope that ASGI allows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from pyserve.replica.asgi.scope import http_scope, tokens, websocket_scope
from tests.unit.aio.fake_ring import FakeHttpHead

# What hyper takes as a target and as a value of a header (RFC 9110, section 5.5).
_TARGETS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
_HEADER_VALUES = st.one_of(
    st.binary(max_size=30).map(lambda value: bytes(byte for byte in value if byte >= 0x20)),
    st.from_regex(rb"[\[\]a-z0-9:.]{0,20}(:[0-9]{0,8})?", fullmatch=True),
)


def call(target: bytes, headers: list[tuple[bytes, bytes]], scheme: str = "http") -> Any:
    head = FakeHttpHead(target=target, scheme=scheme, headers=headers)
    return cast("Any", SimpleNamespace(head=head, head_fields=head.fields))


@given(_TARGETS, _HEADER_VALUES, st.sampled_from(["http", "https"]))
@example("/", b"a:" + b"9" * 5000, "http")  # Longer than what Python makes a number of.
@example("/", b"a:99999", "http")
@example("/%ff%zz?%", b"[::1]", "https")
def test_scopes_of_any_head(target: str, host: bytes, scheme: str):
    made = call(b"/" + target.encode(), [(b"host", host)], scheme)
    for scope in (http_scope(made, {"a": 1}), websocket_scope(made, {})):
        raw_path, _, query = made.head.target.partition(b"?")
        assert (raw_path, query) == (scope["raw_path"], scope["query_string"])
        assert isinstance(scope["path"], str)
        server = scope["server"]
        if server is not None:
            assert server[0] or b"[" in host
            assert 0 <= server[1] <= 65535


@given(st.text(st.characters(codec="utf-8"), max_size=20))
@example("caf\u00e9 %")
def test_a_path_comes_back_decoded(path: str):
    """ASGI: of percents and of UTF-8, which clients such as curl do not encode."""
    encoded = quote(path, safe="/")
    for sent in (encoded.encode(), path.replace("%", "%25").replace("?", "%3F").encode()):
        made = call(b"/" + sent, [])
        assert "/" + path == http_scope(made, {})["path"]


@given(st.lists(st.from_regex(r"[!-+\--~]{1,8}", fullmatch=True), max_size=5))
def test_tokens_come_back(names: list[str]):
    headers = [(b"x-list", b" ,".join(name.encode() for name in names)), (b"other", b"a,b")]
    assert names == tokens(headers, b"x-list")
