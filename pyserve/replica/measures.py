"""What a replica has counted, and where it says so."""

from __future__ import annotations

import logging
from pathlib import Path

from pyserve.api.context import ReplicaContext
from pyserve.observe.metrics import ProcessMetrics, ScrapePoint

_LOGGER = logging.getLogger(__name__)


class ReplicaMetrics:
    """The metrics of one replica.

    Args:
        metrics: Takes them.
    """

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics
        self._point: ScrapePoint | None = None

    def show(self, context: ReplicaContext, folder: Path | None, token: bytes) -> None:
        """Answer scrapes from here on, while user code is brought up too.

        Args:
            context: Who the replica is.
            folder: Where the socket goes; ``None``: others show what is counted, or nobody.
            token: Of the mesh.
        """
        self._metrics.labels.update(
            application=context.app_name, deployment=context.deployment, replica=context.replica_id
        )
        if folder is None:
            return
        try:
            self._point = ScrapePoint(self._metrics, folder, token)
        except OSError as error:
            _LOGGER.warning("no metrics of this replica are shown: %s", error)

    def close(self) -> None:
        """Answer no more. Idempotent."""
        if self._point is not None:
            self._point.close()
