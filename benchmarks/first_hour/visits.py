"""What one sees of a service when all is well: first answer, terminal, page, edits."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.comparison import Spread
from benchmarks.first_hour.mistakes import Verdict, mistakes_in_calls
from benchmarks.first_hour.systems import ANSWER, LABEL, System
from benchmarks.first_hour.trial import Trial, free_port, request, running

# Nobody edits a file in the second in which the service has come up.
_READING_S = 2.0
_ADDRESS_OF_A_PAGE = re.compile(r"browser at (http://\S+)")


class TrialError(Exception):
    """A service did what it should not; the text has what its terminal showed."""


@dataclass(frozen=True)
class Visit:
    """One run in which nobody asks before the terminal is calm.

    Attributes:
        shown: Lines until then.
        address: Whether the port of the service is among them.
        shown_then: Lines that the first request brought.
        page: Where a page to try the service is; "": there is none.
        page_shown: Whether its address is among the lines.
        external: What that page loads from elsewhere.
        mistakes: Those of callers.
    """

    shown: Sequence[str]
    address: bool
    shown_then: Sequence[str]
    page: str
    page_shown: bool
    external: Sequence[str]
    mistakes: Mapping[str, Verdict]


def first_answer_s(system: System, environment: Path) -> float:
    """Return the seconds from the command to the first right answer."""
    with running(system, environment, system.program, port=free_port()) as trial:
        _wait_for_answer(trial)
        return trial.elapsed_s()


def visit(system: System, environment: Path, start_s: float) -> Visit:
    """Start the service, look at its terminal, ask, look at its page, and ask wrongly.

    Args:
        system: Whose service it is.
        environment: Where that is installed.
        start_s: How long a start takes.
    """
    with running(system, environment, system.program, port=free_port()) as trial:
        trial.pause(2 * start_s + 1.0)
        trial.wait_until_calm()
        shown = trial.lines()
        _wait_for_answer(trial)
        trial.wait_until_calm()
        shown_then = trial.lines()[len(shown) :]
        page, external = _page(trial)
        return Visit(
            shown=shown,
            address=any(f":{trial.port}" in line for line in shown),
            shown_then=shown_then,
            page=page,
            page_shown=bool(page) and any(_local(page) in _local(line) for line in shown),
            external=external,
            mistakes=mistakes_in_calls(trial),
        )


def reload(system: System, environment: Path, edits: int) -> dict[str, object]:
    """Edit the service while it runs, again and again.

    Returns:
        ``seconds`` from saving the file to the first answer that shows the edit, and ``gap_s``, the
        longest time between two right answers meanwhile; both as spreads.
    """
    assert system.reload is not None
    seconds: list[float] = []
    gaps: list[float] = []
    port = free_port()
    with running(system, environment, system.program, port=port, command=system.reload) as trial:
        _wait_for_answer(trial)
        label = str(ANSWER["label"])
        for number in range(edits):
            trial.pause(_READING_S)
            before, label = label, f"edit {number}"
            took_s, gap_s = _edit(trial, before, label)
            seconds.append(took_s)
            gaps.append(gap_s)
        shown = trial.lines()
    return {"seconds": asdict(Spread.of(seconds)), "gap_s": asdict(Spread.of(gaps)), "shown": shown}


def _edit(trial: Trial, before: str, after: str) -> tuple[float, float]:
    """Change the label; return the seconds until an answer has it, and the longest gap."""
    program = trial.system.program.replace(LABEL, f'"{after}"')
    trial.file.write_text(trial.system.at(trial.port, program), encoding="utf-8")
    began = last = time.monotonic()
    gap_s = 0.0

    def is_there() -> bool:
        nonlocal last, gap_s
        changed = trial.answers(after)
        if changed or trial.answers(before):
            now = time.monotonic()
            gap_s, last = max(gap_s, now - last), now
        return changed

    if not trial.wait(is_there):
        raise TrialError("\n".join([f"{trial.system.title} does not reload:", *trial.lines()]))
    return last - began, gap_s


def _wait_for_answer(trial: Trial) -> None:
    if not trial.wait(trial.answers):
        raise TrialError("\n".join([f"{trial.system.title} does not answer:", *trial.lines()]))


def _page(trial: Trial) -> tuple[str, list[str]]:
    """Return the address of the page to try, and what it loads from elsewhere."""
    if trial.system.page is not None:
        url = f"http://127.0.0.1:{trial.port}{trial.system.page}"
    else:
        found = _ADDRESS_OF_A_PAGE.search("\n".join(trial.lines()))
        url = found[1] if found else ""
    answer = request(url) if url else None
    if answer is None or answer.status != 200 or "<html" not in answer.body.lower():
        return "", []
    return url, external_references(answer.body)


def _local(text: str) -> str:
    """Call loopback by one name, and an address with and without its last slash the same."""
    return re.sub(r"//(?:localhost|0\.0\.0\.0)\b", "//127.0.0.1", text).removesuffix("/")


def external_references(html: str) -> list[str]:
    """Return the scripts, styles, pictures and frames that a page has from other hosts."""
    page = _Loaded()
    page.feed(html)
    return [each for each in page.references if urlsplit(each).netloc]


class _Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = {"script": "src", "link": "href", "img": "src", "iframe": "src"}.get(tag)
        self.references += [value for key, value in attrs if key == name and value]
