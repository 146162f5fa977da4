"""The text of a choice, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.llm.openai.text import Text

pytestmark = pytest.mark.parity("G-86")


def shown(pieces: list[str], stop: list[str]) -> tuple[str, bool]:
    text = Text(stop)
    found = "".join(text.take(each) for each in pieces)
    return found + text.take("", is_last=True), text.is_stopped


@given(
    st.lists(st.text("ab.", max_size=4), max_size=8),
    st.lists(st.text("ab.", min_size=1, max_size=3), max_size=2),
)
def test_it_is_the_same_however_it_is_cut(pieces: list[str], stop: list[str]):
    whole = "".join(pieces)
    found, is_stopped = shown(pieces, stop)

    # Which of several sequences comes first may depend on where the text is cut.
    assert is_stopped == any(each in whole for each in stop)
    assert whole.startswith(found)
    assert [] == [each for each in stop if each in found]
    if not is_stopped:
        assert whole == found
    elif len(stop) == 1:
        assert whole[: whole.index(stop[0])] == found


@given(st.text(max_size=12), st.data())
def test_characters_are_whole(whole: str, data: st.DataObject):
    raw = whole.encode("utf-8", "ignore")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    text = Text()
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    found = "".join(text.take("", each) for each in pieces) + text.take("", is_last=True)

    assert raw.decode() == found


def test_bytes_that_are_no_character_are_replaced_at_the_end():
    text = Text()

    assert "a" == text.take("", b"a\xe2\x82")
    assert "\N{REPLACEMENT CHARACTER}" == text.take("", is_last=True)
