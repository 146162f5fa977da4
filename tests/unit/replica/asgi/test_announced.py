"""The heads of frames count once against the limits of a message, however they come."""

import pytest
from wsproto import events
from wsproto.connection import Connection, ConnectionType

from pyserve.replica.asgi.deflate import AnnouncedSize

_FRAMES = (
    b"\x02\x85\x00\x00\x00\x00abcde"
    + b"\x00\x84\x00\x00\x00\x00abcd" * 3
    + b"\x89\x80\x00\x00\x00\x00"
    + b"\x80\x83\x00\x00\x00\x00xyz"
)


@pytest.mark.parametrize(("bytes_max", "frames_max"), [(20, 5), (19, 5), (20, 4)])
@pytest.mark.parametrize("size", [1, 3, 7, len(_FRAMES)])
def test_a_head_that_comes_in_pieces_counts_once(
    bytes_max: int, frames_max: int, size: int
) -> None:
    connection = Connection(ConnectionType.SERVER, [AnnouncedSize(bytes_max, frames_max)])
    seen: list[events.Event] = []
    for start in range(0, len(_FRAMES), size):
        connection.receive_data(_FRAMES[start : start + size])
        seen += connection.events()
        if any(isinstance(event, events.CloseConnection) for event in seen):
            break
    is_refused = isinstance(seen[-1], events.CloseConnection)
    assert is_refused == ((20, 5) != (bytes_max, frames_max))
    if not is_refused:
        parts = [event.data for event in seen if isinstance(event, events.BytesMessage)]
        assert b"abcdeabcdabcdabcdxyz" == b"".join(parts)
