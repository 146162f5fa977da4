"""Sealed memory: written once, then the same for everybody."""

import fcntl
import mmap
import os

import numpy
import pytest

from pyserve.references import holding

pytestmark = pytest.mark.skipif(not holding.IS_SUPPORTED, reason="memfds are of Linux")


@pytest.fixture
def segment():
    made = holding.Segment([b"head", numpy.arange(1000.0).tobytes(), b"", b"tail"])
    yield made
    made.close()


def test_parts_are_written_one_after_the_other(segment):
    view = memoryview(segment.map())
    assert b"head" == view[:4]
    assert b"tail" == view[-4:]
    assert (numpy.arange(1000.0) == numpy.frombuffer(view[4:-4])).all()
    assert 8008 == segment.size_bytes == len(view)


def test_more_parts_than_one_call_takes_are_written():
    made = holding.Segment([bytes((index % 251,)) * 3 for index in range(5000)])
    expected = b"".join(bytes((index % 251,)) * 3 for index in range(5000))
    assert expected == bytes(made.map())
    made.close()


def test_what_is_left_after_a_short_write_begins_there():
    assert [b"d", b"ef"] == holding._rest([b"ab", b"cd", b"ef"], 3)
    assert [b"ef"] == holding._rest([b"ab", b"cd", b"ef"], 4)
    assert [] == holding._rest([b"ab"], 2)


def test_a_value_cannot_be_changed_any_more(segment):
    for change in (
        lambda: os.write(segment.fd, b"x"),
        lambda: os.ftruncate(segment.fd, 1),
        lambda: os.ftruncate(segment.fd, 1 << 20),
        lambda: mmap.mmap(segment.fd, segment.size_bytes),
        lambda: fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    ):
        with pytest.raises(PermissionError):
            change()
    with pytest.raises(TypeError, match="read"):
        segment.map()[0] = 1


def test_memory_that_can_be_cut_off_is_not_mapped():
    """Reading behind its end would kill the process."""
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, b"12345")
    with pytest.raises(ValueError, match="not sealed"):
        holding.map_value(fd, 5)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, holding._SEALS)
    with pytest.raises(ValueError, match="of 6 bytes came in memory of 5"):
        holding.map_value(fd, 6)
    assert b"12345" == bytes(holding.map_value(fd, 5))
    os.close(fd)


def test_mappings_outlive_the_descriptor():
    made = holding.Segment([b"value"])
    mapping = made.map()
    made.close()
    assert b"value" == bytes(mapping)
