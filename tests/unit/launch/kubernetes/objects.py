"""Objects of the API as a cluster has them, with what tests change."""

from __future__ import annotations

from typing import Any

from tests.unit.launch.orders import ECHO

IMAGE = "registry.example/echo:2"


def pod(
    replica: str = ECHO,
    *,
    uid: str = "one",
    node: str = "",
    leaving: bool = False,
    memory: str = "",
    **status: Any,
) -> dict[str, Any]:
    """Return a pod with a status; ``state`` among it is that of its container."""
    container: dict[str, Any] = {"name": "replica", "image": IMAGE}
    if memory:
        container["resources"] = {"limits": {"memory": memory}}
    state = status.pop("state", None)
    return {
        "metadata": {
            "name": "echo-abcde",
            "uid": uid,
            "annotations": {"pyserve/replica": replica},
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {
            "phase": "Pending",
            **({"containerStatuses": [{"name": "replica", "state": state}]} if state else {}),
            **status,
        },
    }


def terminated(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    """Return the state of a container that has ended."""
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """Return the state of a container that does not run yet."""
    return {"waiting": {"reason": reason, "message": message}}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    """Return one of a pod's or node's conditions."""
    return {"type": kind, "status": status, "reason": reason, "message": message}
