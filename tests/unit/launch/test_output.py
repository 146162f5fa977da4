"""Output becomes lines of bounded length, whatever pieces it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config.control import PASSING
from pyserve.launch.output import LineSplitter
from pyserve.observe.logs.formats import LongLine


def split(*pieces, line_bytes_max=16):
    splitter = LineSplitter(line_bytes_max, 2 * line_bytes_max)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return [*lines, *splitter.end()]


def lines_of(*pieces, line_bytes_max=16):
    return [
        line for line in split(*pieces, line_bytes_max=line_bytes_max) if not line.endswith(PASSING)
    ]


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
        ((b"\r10%\r50%\r99%\ndone\n",), ["99%", "done"]),
        ((b"10%\r50%\r\n",), ["50%"]),
        ((b"".join(b"\r%15d" % each for each in range(99)) + b"\n",), [f"{98:15d}"]),
    ],
)
def test_output_is_cut_into_lines(pieces, lines):
    assert lines == split(*pieces)


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        ((b"10%\r", b"50%\r", b"99%", b"\n"), ["10%\r", "50%\r", "99%\r", "99%"]),
        ((b"\r10%", b"\r5", b"0%"), ["10%\r", "5\r", "50%\r", "50%"]),
        ((b"a\n\r10%", b"\nb", b"c\n"), ["a", "10%\r", "10%", "bc"]),
    ],
)
def test_a_row_that_is_written_over_is_seen_meanwhile(pieces, seen):
    assert seen == split(*pieces)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ((b'{"a": "', b"x" * 12, b'"}\nnext\n'), ['{"a": "xxxxxxxxxxxx"}', "next"]),
        ((b'10%\r{"a": "xxxxxxxxxxxx"}\n',), ['{"a": "xxxxxxxxxxxx"}']),
        ((b'{"a": "xxxxxxxxxxxx"',), ['{"a": "xxxxxxxxx … [4 bytes more]']),
        ((b"{" + b"x" * 40 + b"\n",), ["{xxxxxxxxxxxxxxx … [25 bytes more]"]),
        ((b'{"a": 1}         ', b"and\n"), ['{"a": 1}         … [4 bytes more]']),
    ],
    ids=["object", "behind what is passing", "unfinished", "longer than any", "more than one"],
)
def test_an_object_has_a_bound_of_its_own(pieces, lines):
    seen = [line for line in split(*pieces) if not line.endswith(PASSING)]
    assert lines == [getattr(line, "whole", line) for line in seen]
    assert all(isinstance(line, LongLine) for line in seen if line.endswith("}"))


@given(st.lists(st.text("ab{}\r\n", max_size=8).map(str.encode), max_size=20))
def test_pieces_do_not_matter(pieces):
    assert lines_of(b"".join(pieces), line_bytes_max=1000) == lines_of(*pieces, line_bytes_max=1000)
