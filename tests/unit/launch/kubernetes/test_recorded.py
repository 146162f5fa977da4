"""What follows from watch streams of a real cluster; `make kubernetes` records them again.

``TEST_KUBERNETES_RECORD=1`` does, with the names of replicas and pods of that run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launch.kubernetes.streams import FOLDER, Stream, told

pytestmark = pytest.mark.parity("G-69")
STREAMS = sorted(FOLDER.glob("*.json"))


def test_there_are_some() -> None:
    assert STREAMS


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_recorded_stream_is_told_as_it_was_read(path: Path) -> None:
    stream = Stream.read(path)

    assert stream.told == told(stream.events)


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_events_that_come_twice_change_nothing(path: Path) -> None:
    stream = Stream.read(path)

    assert stream.told == told(stream.events, replay=2)
