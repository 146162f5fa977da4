"""Python's cyclic garbage collector in a process that serves.

It costs most where it finds nothing. Imports make hundreds of thousands of objects that stay, and
collections among them are a tenth of a start. The last one, when the interpreter ends, walks
through all modules, and is a sixth of the processor time of a process that does little else.
A request makes some hundred containers (task, context, headers, the decoded body) that die by their
counts, and at the interpreter's defaults every few of them pay for a collection that finds nothing:
3 % of all CPU of a JSON request, ingress included, more under a framework.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# The interpreter's initial thresholds, before user code can change them.
_DEFAULTS = gc.get_threshold()
# Some dozens of requests; what a collection then walks through takes below a millisecond, and the
# most that waits for it is a few megabytes.
YOUNG_MAX = 10_000


@contextmanager
def importing() -> Iterator[None]:
    """Collect nothing while modules are imported, nor later what they consist of.

    For the modules of a program, before it has made anything else.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def end_uncollected() -> None:
    """Let the interpreter end without a collection.

    For a process in which no finalizer is left that would have to run then.
    """
    atexit.register(gc.freeze)


def settle() -> None:
    """Collect once, exempt the objects loaded so far, and collect less often from then on.

    Model, modules and handlers live as long as the process: full collections need not walk through
    them. Thresholds that the user has set, or switched off, are kept.
    """
    gc.collect()
    gc.freeze()
    if gc.get_threshold() == _DEFAULTS:
        gc.set_threshold(YOUNG_MAX, *_DEFAULTS[1:])
