"""One thing that was looked at, how it is, and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How it is: as it should be, worth to know, or wrong."""

    OK = "ok"
    NOTICE = "notice"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        subject: What was looked at.
        state: How it is.
        text: What was found.
        remedy: What to do; "" where there is nothing to do.
    """

    subject: str
    state: State
    text: str
    remedy: str = ""


def ok(subject: str, text: str) -> Finding:
    """Return a finding of what is as it should be."""
    return Finding(subject, State.OK, text)


def notice(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding that may be meant so."""
    return Finding(subject, State.NOTICE, text, remedy)


def wrong(subject: str, text: str, remedy: str) -> Finding:
    """Return a finding of what does not work, or soon will not."""
    return Finding(subject, State.WRONG, text, remedy)
