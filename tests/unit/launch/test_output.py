"""Output becomes lines of bounded length, whatever pieces it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.launch.output import LineSplitter


def split(*pieces, line_bytes_max=16):
    splitter = LineSplitter(line_bytes_max)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return [*lines, *splitter.end()]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ((), []),
        ((b"a\nb\n",), ["a", "b"]),
        (
            (
                b"a",
                b"b\nc",
            ),
            ["ab", "c"],
        ),
        ((b"\n\n",), ["", ""]),
        ((b"a\r\n",), ["a"]),
        ((b"\xff\n",), ["�"]),
        ((b"x" * 20 + b"\nnext\n",), ["x" * 16 + " … [4 bytes more]", "next"]),
        ((b"x" * 16, b"y" * 3), ["x" * 16 + " … [3 bytes more]"]),
    ],
)
def test_output_is_cut_into_lines(pieces, lines):
    assert lines == split(*pieces)


@given(st.lists(st.binary(max_size=8).filter(lambda item: b"\r" not in item), max_size=20))
def test_pieces_do_not_matter(pieces):
    assert split(b"".join(pieces), line_bytes_max=1000) == split(*pieces, line_bytes_max=1000)
