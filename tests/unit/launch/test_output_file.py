"""The output of a process in a file: every line once, across readers, and bounded."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyserve.config.control import OUTPUT_FILE_KEPT_BYTES
from pyserve.launch.output import OutputFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "output-1.log"


@contextlib.contextmanager
def reader(path):
    lines: list[str] = []
    file = OutputFile(path, lines.append)
    try:
        yield file, lines
    finally:
        file.close(remove=False)


def write(file, text):
    os.write(file.descriptor, text.encode())


def test_lines_are_passed_on_when_they_are_whole(path):
    with reader(path) as (file, lines):
        write(file, "one\ntw")
        file.read()
        assert ["one"] == lines
        write(file, "o\n\n")
        file.read()
        file.read()
        assert ["one", "two", ""] == lines
        assert "two" == file.last_line


@given(st.lists(st.sampled_from(["a\n", "b", "\n", "next"]), max_size=20))
def test_each_line_is_read_once_by_one_of_many_readers(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("o") / "output-1.log"
    written, read = "", []
    with contextlib.ExitStack() as stack:
        file, lines = stack.enter_context(reader(path))
        for event in events:
            if event == "next":
                file.read()  # In the middle of a line, maybe.
                read += lines
                stack.pop_all().close()
                file, lines = stack.enter_context(reader(path))
            else:
                write(file, event)
                written += event
        file.read()
        assert written.split("\n")[:-1] == read + lines


def test_what_was_read_is_emptied_when_it_is_much(path):
    with reader(path) as (file, lines):
        write(file, "x" * 9 + "\n")
        for _ in range(OUTPUT_FILE_KEPT_BYTES // 1000):
            write(file, ("y" * 99 + "\n") * 10)
        file.read()
        file.read()
        assert 1 + OUTPUT_FILE_KEPT_BYTES // 1000 * 10 == len(lines)
        write(file, "more" * OUTPUT_FILE_KEPT_BYTES + "\n")
        for _ in range(8):
            file.read()
        assert 0 == path.stat().st_size
        write(file, "again\n")
        file.read()
        assert "again" == lines[-1]


def test_a_file_that_its_writer_emptied_is_read_from_its_beginning(path):
    with reader(path) as (file, lines):
        write(file, "a long line\n")
        file.read()
        os.ftruncate(file.descriptor, 0)
        write(file, "new\n")
        file.read()
        assert ["a long line", "new"] == lines


def test_its_end_passes_on_what_is_left_and_removes_the_files(path):
    with reader(path) as (file, lines):
        write(file, "one\nlast words")
        file.close(remove=True)
        assert ["one", "last words"] == lines
    assert [] == list(path.parent.iterdir())


def test_its_end_passes_on_what_is_left_where_its_folder_has_gone(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with reader(folder / "output-1.log") as (file, lines):
        write(file, "last")
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()
        folder.write_text("in the way")

        file.close(remove=True)

        assert ["last"] == lines
