"""Whether the batch sizes of methods that call each other fit."""

from __future__ import annotations

from itertools import pairwise


def check_chain(*sizes: int) -> str | None:
    """Look at the batch sizes along a chain, upstream first.

    A batch of 8 becomes 6 and a rest of 2 in front of a method that takes 6: the rest waits, or
    runs nearly empty. Sizes of which one is a multiple of the other (8, 8, 4) leave no rest.

    Args:
        sizes: ``max_batch_size`` of each method; 0 where one is not batched, which ends a chain.

    Returns:
        A text that says what is wrong and what to write instead, or ``None``.
    """
    for upstream, downstream in pairwise(sizes):
        if upstream and downstream and upstream % downstream and downstream % upstream:
            rest = upstream % downstream
            fitting = next(n for n in range(min(upstream, downstream), 0, -1) if not upstream % n)
            return (
                f"batches of {upstream} go into a method that takes max_batch_size={downstream}: "
                f"{rest} of them are left over each time; use a multiple, such as {upstream} or "
                f"{fitting}"
            )
    return None
