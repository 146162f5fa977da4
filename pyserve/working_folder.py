"""Imports of modules that a setting names, from the folder that a process was started in.

Controllers and ingresses are started with ``-P``: the folder is not on their path, so that nothing
in it can take the place of a module, nor of one that a library would like to have and does without.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

_HERE = ""  # As Python has it: wherever the process is then.
_LOCK = threading.RLock()


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Have modules of the folder found after all others, for as long as this lasts.

    Where the folder is on the path anyway, as in drivers and replicas, nothing changes.
    """
    with _LOCK:
        if _HERE in sys.path:
            yield
            return
        sys.path.append(_HERE)
        try:
            yield
        finally:
            # An import may have made the path another list.
            with contextlib.suppress(ValueError):
                sys.path.remove(_HERE)
