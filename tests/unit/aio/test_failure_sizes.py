"""Text and trailing metadata of a failure stay below what clients take."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.aio._metadata import CLIENT_METADATA_BYTES, WireMetadata, fitting_failure, size_bytes

_ROOM = CLIENT_METADATA_BYTES - 512
_KEYS = st.sampled_from(["a", "report", "item-1"])
_PAIRS = st.tuples(_KEYS, st.text("m", max_size=9000)) | st.tuples(
    _KEYS.map(lambda key: f"{key}-bin"), st.binary(max_size=9000)
)
_TEXTS = st.builds(
    lambda unit, count: unit * count, st.sampled_from(["t", "ж%\n", "😀"]), st.integers(0, 9000)
)


def _encoded(text: str) -> int:
    return len(quote(text, safe="".join(map(chr, range(32, 127))).replace("%", "")))


@given(_TEXTS, st.lists(_PAIRS, max_size=20).map(tuple))
def test_the_sum_fits(details: str, trailers: WireMetadata) -> None:
    """A text is whole or has the note; pairs are whole, in their order, or left out."""
    text, kept = fitting_failure(details, trailers, CLIENT_METADATA_BYTES)
    # The native side cuts to that size itself.
    text_bytes = min(_encoded(text), 6 * 1024)
    assert text_bytes + sum(map(size_bytes, kept)) <= _ROOM
    pairs = iter(trailers)
    assert all(pair in pairs for pair in kept)
    if text != details:
        begin, _, end = text.rpartition(" ... ")
        assert details.startswith(begin)
        assert f"(cut: {len(details.encode())} bytes)" == end
        assert text_bytes > 256 - len("\U0001f600".encode()) * 3


@pytest.mark.parametrize(
    ("text_bytes", "value_bytes", "kept_bytes"),
    [
        (100, 7000, 100),
        (6144, 1000, 6144),
        (6144, 3000, _ROOM - 3033),
        (6144, 7390, 257),
        (6144, 7391, 256),
        (7000, 7392, 7000),  # Without the pair the native side's limit is enough.
    ],
)
def test_the_text_is_cut_before_a_pair_is_left_out(
    text_bytes: int, value_bytes: int, kept_bytes: int
) -> None:
    trailers = (("k", "v" * value_bytes),)
    text, kept = fitting_failure("t" * text_bytes, trailers, CLIENT_METADATA_BYTES)
    assert kept_bytes == len(text)
    assert kept == (trailers if value_bytes < 7392 else ())


def test_a_block_takes_no_more_than_48_kib_whatever_clients_take() -> None:
    trailers = (("k", "v" * 40_000), ("l", "v" * 10_000))
    assert ("why", trailers[1:]) == fitting_failure("why", trailers, 1 << 20)
