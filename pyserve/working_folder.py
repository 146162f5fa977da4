"""Imports of modules that a setting names, from folders that are not on the path.

Controllers and ingresses are started with ``-P``: the folder that they were started in is not on
their path, nor are the folders of deploying users. So no file there can replace a module, or an
optional module that a library tries to import.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

_HERE = ""  # Python's name for the current directory at the time of the import.
_LOCK = threading.Lock()
# Users per folder that is on the path only for them. Imports may last long or never end, so they do
# not wait for each other.
_NEEDED: Counter[str] = Counter()


@contextlib.contextmanager
def importable(folders: Sequence[str] = (_HERE,)) -> Iterator[None]:
    """Make modules of these folders importable, after all others, while this context lasts.

    Folders that are on the path anyway, as in drivers and replicas, stay there.

    Args:
        folders: where to look, in order; by default the folder that this process is in.
    """
    added = _add(folders)
    try:
        yield
    finally:
        _remove(added)


def _add(folders: Sequence[str]) -> list[str]:
    added = []
    with _LOCK:
        for each in dict.fromkeys(folders):
            if _NEEDED[each] or each not in sys.path:
                added.append(each)
                if each not in sys.path:
                    sys.path.append(each)
        _NEEDED.update(added)
    return added


def _remove(added: Sequence[str]) -> None:
    with _LOCK:
        _NEEDED.subtract(added)
        for each in added:
            if not _NEEDED[each]:
                del _NEEDED[each]
                # An import may have made the path another list.
                with contextlib.suppress(ValueError):
                    sys.path.remove(each)
