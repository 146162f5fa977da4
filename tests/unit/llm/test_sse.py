"""Server-sent events in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.llm.engines.sse import EventReader

STREAM = (
    'data: {"a": "é"}\n\n: waiting\r\n\r\nevent: x\ndata:one\ndata: two\n\n'
    "id: 3\n\ndata: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=20))
def test_events_do_not_depend_on_how_they_are_cut(cuts):
    raw = STREAM.encode()
    places = [0, *sorted(cuts), len(raw)]
    reader = EventReader()
    found = [event for start, end in pairwise(places) for event in reader.feed(raw[start:end])]
    assert ['{"a": "é"}', "one\ntwo", "[DONE]"] == found


def test_an_event_without_an_end_is_bounded():
    with pytest.raises(ValueError, match="larger than"):
        EventReader().feed(b"data: " + bytes(17 * 1024 * 1024))
    reader = EventReader()
    pieces = (reader.feed(b"data: " + bytes(1024 * 1024) + b"\n") for _ in range(20))
    with pytest.raises(ValueError, match="larger than"):
        list(pieces)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ValueError, match="utf-8"):
        EventReader().feed(b"data: \xff\n\n")
