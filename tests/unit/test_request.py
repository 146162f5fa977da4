"""The request of user code: the callbacks for its cancellation and its end."""

import threading
from collections.abc import Callable

from pyserve.request import Request


class Racer:
    """Lets something happen on another thread in the middle of being added."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.was_cancelled = False
        self.thread = threading.Thread(target=meanwhile)

    def __hash__(self) -> int:
        if self.thread.ident is None:
            self.thread.start()
            self.thread.join(0.05)  # It is done, or waits until the adding is.
        return 1

    def cancel(self) -> None:
        self.was_cancelled = True


class Ending:
    has_ended = False

    def end(self) -> None:
        self.has_ended = True


def test_a_call_that_a_thread_makes_during_the_cancellation_is_cancelled():
    request = Request()
    child = Racer(request.cancel)
    request.add_child(child)
    child.thread.join(30)
    assert child.was_cancelled


def test_what_a_request_has_asked_for_ends_with_it():
    request, ending = Request(), Ending()
    request.add_ending(ending)
    request.end()
    assert ending.has_ended


def test_what_comes_after_the_end_is_left_to_whoever_asked():
    """A handler may start work that goes on after its answer, and calls other deployments."""
    request, ending = Request(), Ending()
    request.end()
    request.add_ending(ending)
    assert not ending.has_ended
