"""Follows the output of replicas in the cluster's logs: one stream for each running pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from pyserve.config.launchers import REPLICA_CONTAINER
from pyserve.control.replicas.launching import ReplicaOrder
from pyserve.launch.on_kubernetes.api import Api, ApiError, ApiUnreachableError
from pyserve.launch.on_kubernetes.reading import PodView

_LOGGER = logging.getLogger(__name__)
# How long to wait for the last lines: the node sends them by the time it reports the end.
_LAST_WORDS_S = 2.0
_AGAIN_S = 1.0
# More than a traceback has. Arbitrary.
_LAST_LINES = 100


class OutputFollower:
    """The output of the pods of one mesh, until ``close``.

    Args:
        api: of the cluster.
        path: of the namespace's pods.
        said: takes each line, without its end.
    """

    def __init__(self, api: Api, path: str, said: Callable[[ReplicaOrder, str], None]) -> None:
        self._api = api
        self._path = path
        self._said = said
        self._following: dict[str, asyncio.Task[None]] = {}

    def follow(self, order: ReplicaOrder, pod: str, *, is_old: bool = False) -> None:
        """Take the lines of a pod that runs; once, however often it is asked.

        Args:
            order: whose they are.
            pod: its name.
            is_old: an earlier controller has taken the output so far.
        """
        if pod not in self._following:
            work = self._follow(order, pod, {"tailLines": "0"} if is_old else {})
            self._following[pod] = asyncio.get_running_loop().create_task(work)

    async def finish(self, order: ReplicaOrder, pod: str, view: PodView | None) -> None:
        """Take the last lines of a pod that has ended."""
        task = self._following.pop(pod, None)
        if task is not None:
            await asyncio.wait([task], timeout=_LAST_WORDS_S)
            task.cancel()
        elif view is not None:
            # It has ended before anybody saw it run.
            for line in view.last_output.splitlines()[-_LAST_LINES:]:
                self._said(order, line)

    def close(self) -> None:
        """Follow none any more. Idempotent."""
        for task in self._following.values():
            task.cancel()
        self._following.clear()

    async def _follow(self, order: ReplicaOrder, pod: str, begin: Mapping[str, str]) -> None:
        query = {"container": REPLICA_CONTAINER, "follow": "true", "timestamps": "true", **begin}
        last = ""
        while True:
            try:
                async with self._api.lines(f"{self._path}/{pod}/log", query, None) as lines:
                    async for line in lines:
                        # Of one length and in UTC, so that they sort as texts.
                        time, _, text = line.partition(" ")
                        if time > last:
                            last = time
                            self._said(order, text)
                return
            except ApiError as error:
                _LOGGER.warning("the output of pod %s is not followed: %s", pod, error)
                return
            except (ApiUnreachableError, ValueError) as error:
                _LOGGER.info("the output of pod %s is followed anew: %s", pod, error)
            await asyncio.sleep(_AGAIN_S)
            query.pop("tailLines", None)
            query["sinceTime"] = last or query.get("sinceTime", "")
            if not query["sinceTime"]:
                del query["sinceTime"]
