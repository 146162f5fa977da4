"""How the progress of a deployment is shown, on a terminal and elsewhere."""

import io

from pyserve.driver.progress import LiveProgress, PlainProgress, progress_view
from pyserve.wire.v1 import control_pb2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def event(ready: int, note: str = "") -> control_pb2.Progress:
    return control_pb2.Progress(deployment="Echo", ready=ready, wanted=2, note=note)


def test_plain_lines_tell_each_change_once_and_one_line_of_a_note() -> None:
    file = io.StringIO()
    with progress_view(file=file) as view:
        for each in (event(0, "starts"), event(0, "starts"), event(1, "failed: x\nmore")):
            view.update(each)
    assert isinstance(view, PlainProgress)
    assert [
        "pyserve: Echo: 0 of 2 replicas ready (starts)",
        "pyserve: Echo: 1 of 2 replicas ready (failed: x)",
    ] == file.getvalue().splitlines()


def test_that_a_deployment_is_ready_is_said_once() -> None:
    for file in (io.StringIO(), Terminal()):
        with progress_view(file=file) as view:
            view.update(event(1, "starts"))
            view.update(event(2, "is ready"))
        assert "is ready" not in file.getvalue()
        assert "2" in file.getvalue()


def test_a_terminal_gets_a_bar() -> None:
    file = Terminal()
    with progress_view(file=file) as view:
        view.update(event(0, "starts"))
        view.update(event(2, "dict[str, int] [/x]"))
    assert isinstance(view, LiveProgress)
    assert "Echo" in file.getvalue()
    assert "2/2 ready" in file.getvalue()
    assert "dict[str, int] [/x]" in file.getvalue()
