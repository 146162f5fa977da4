"""Records a finished batch, to explain later where the time of its calls went."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from pyserve.observe.delays import MEMBERS_MAX, PROCESS_DELAYS, BatchDelay, wall_clock_from

if TYPE_CHECKING:
    from pyserve.batching.lanes import Batch
    from pyserve.batching.runs import Run
    from pyserve.batching.streams import StreamRun


def keep_batch(
    label: str, run: Run | StreamRun, now: float, duration_s: float, *, has_failed: bool
) -> None:
    """Keep a batch that has ended now, after a run of ``duration_s``.

    This makes the members' request objects, which are otherwise not needed, so it is for few
    batches.
    """
    batch: Batch[Any] = run.batch
    wall = wall_clock_from(now)
    members = [
        (call.source.request().request_id, wall(arrival))
        for call, arrival in islice(zip(batch.items, batch.arrivals, strict=True), MEMBERS_MAX)
        if call.source is not None
    ]
    PROCESS_DELAYS.add_batch(
        BatchDelay(
            function=label,
            reason=str(batch.reason),
            model_id=batch.key,
            size=len(batch.items),
            left_at=wall(now - duration_s),
            ended_at=wall(now),
            failed=has_failed,
            request_id=run.source.request_id(),
            members=tuple(members),
        )
    )
