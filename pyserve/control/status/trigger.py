"""The cause of a deployment's status, in the words of Ray Serve. Pure."""

from __future__ import annotations

from pyserve.control.state.mesh import Desired

_OF_WORDS = {"UNHEALTHY": "HEALTH_CHECK_FAILED", "DEPLOY_FAILED": "REPLICA_STARTUP_FAILED"}
_SCALES = ("UPSCALING", "DOWNSCALING")
# Of one that is healthy, by how it was before.
_COMPLETED = {
    "UPSCALING": "UPSCALE_COMPLETED",
    "DOWNSCALING": "DOWNSCALE_COMPLETED",
    "UNHEALTHY": "UNSPECIFIED",
}


def status_trigger(desired: Desired, word: str, former: str) -> str:
    """Return one of the names of ``DeploymentStatusTrigger``.

    Args:
        desired: The deployment.
        word: How it is, as ``health`` puts it.
        former: How it was before; "": unknown.
    """
    if desired.target is None:
        return "DELETING"
    if word in _SCALES and desired.target.options.scaling is not None:
        return "AUTOSCALING"
    if word == "HEALTHY":
        return _COMPLETED.get(former, "CONFIG_UPDATE_COMPLETED")
    return _OF_WORDS.get(word, "CONFIG_UPDATE_STARTED")
