"""Python's cyclic garbage collector in a process that serves.

A request makes some hundred containers (task, context, headers, the decoded body) that die by their
counts, and at the interpreter's defaults every few of them pay for a collection that finds nothing:
3 % of all CPU of a JSON request, ingress included, more under a framework.
"""

from __future__ import annotations

import gc

# The interpreter's initial thresholds, before user code can change them.
_DEFAULTS = gc.get_threshold()
# Some dozens of requests; what a collection then walks through takes below a millisecond, and the
# most that waits for it is a few megabytes.
YOUNG_MAX = 10_000


def settle() -> None:
    """Collect once, exempt the objects loaded so far, and collect less often from then on.

    Model, modules and handlers live as long as the process: full collections need not walk through
    them. Thresholds that the user has set, or switched off, are kept.
    """
    gc.collect()
    gc.freeze()
    if gc.get_threshold() == _DEFAULTS:
        gc.set_threshold(YOUNG_MAX, *_DEFAULTS[1:])
