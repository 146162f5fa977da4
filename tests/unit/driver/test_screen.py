"""A screen keeps lines above its own drawing, no matter which process wrote them."""

import io
import os

import pyte
import pytest
from rich.text import Text

from pyserve.driver.screen import Screen
from tests.support.waiting import wait_until


class Terminal(io.StringIO):
    """A terminal of 40 columns that nobody else writes to."""

    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        screen = pyte.Screen(40, 20)
        pyte.Stream(screen).feed(self.getvalue().replace("\n", "\r\n"))
        return [row.rstrip() for row in screen.display if row.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_lines_come_above_what_is_shown(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.line("before")
    screen.show("bars", Text("0 of 1"))
    screen.line("[Echo#1] " + "x" * 40)
    screen.line("[Echo#1] [bold]as it is[/bold]")
    assert [
        "before",
        "[Echo#1] " + "x" * 31,
        "x" * 9,
        "[Echo#1] [bold]as it is[/bold]",
        "0 of 1",
    ] == terminal.rows()
    screen.hide("bars")
    screen.line("after")
    assert "0 of 1" not in terminal.rows()
    assert "after" == terminal.rows()[-1]


@pytest.mark.parametrize("is_own", [False, True])
def test_what_is_passing_is_drawn_until_its_line_comes(terminal: Terminal, is_own: bool) -> None:
    """On a terminal that others write to only beside other things."""
    screen = Screen(terminal, is_own=is_own)
    screen.passing("[Echo#1] 10%")
    assert is_own is ("[Echo#1] 10%" in terminal.rows())
    screen.show("bars", Text("0 of 1"))
    screen.passing("[Echo#1] 20%")
    screen.passing("[Echo#2] 5%")
    screen.line("[Echo#3] a line")
    wanted = ["[Echo#3] a line", "[Echo#1] 20%", "[Echo#2] 5%", "0 of 1"]
    wait_until(lambda: wanted == terminal.rows())
    screen.passing("[Echo#2]     ")
    screen.line("[Echo#1] 100%")
    wait_until(lambda: ["[Echo#3] a line", "[Echo#1] 100%", "0 of 1"] == terminal.rows())
    screen.close()
    assert ["[Echo#3] a line", "[Echo#1] 100%"] == terminal.rows()


def test_what_comes_over_the_pipe_is_there_when_the_mesh_has_ended(terminal: Terminal) -> None:
    screen = Screen(terminal)
    writer = screen.open_pipe()
    for piece in (b"[Echo#1] on", b"e\n[Echo#1] 10%\r[Echo#1] tw", b"o\nlast\n"):
        os.write(writer, piece)
    os.close(writer)
    screen.close()
    assert ["[Echo#1] one", "[Echo#1] two", "last"] == terminal.rows()
