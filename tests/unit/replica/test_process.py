"""What a replica's process does besides its worker."""

import os

from pyserve.config.control import OUTPUT_FILE_BYTES_MAX
from pyserve.replica.process import empty_if_large


def test_an_output_file_is_emptied_beyond_its_bound_and_goes_on(tmp_path):
    path = tmp_path / "output-1.log"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        os.ftruncate(descriptor, OUTPUT_FILE_BYTES_MAX)
        empty_if_large(descriptor)
        assert OUTPUT_FILE_BYTES_MAX == path.stat().st_size
        os.write(descriptor, b"one more")
        empty_if_large(descriptor)
        os.write(descriptor, b"next")
        assert b"next" == path.read_bytes()
    finally:
        os.close(descriptor)


def test_what_is_no_file_is_left_alone():
    reader, writer = os.pipe()
    try:
        empty_if_large(writer)
    finally:
        os.close(reader)
        os.close(writer)
