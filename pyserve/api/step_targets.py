"""Targets of autoscaling that only a continuously batched class can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyserve.errors import OptionError

if TYPE_CHECKING:
    from pyserve.config import DeploymentOptions


class StepTargetRefused(OptionError):
    """A deployment has such a target, and its class has no steps.

    Args:
        deployment: Its name.
        code: The name of what it deploys.
        option: The target, as ``autoscaling_config`` has it.
    """

    def __init__(self, deployment: str, code: str, option: str) -> None:
        super().__init__(
            f"deployment {deployment!r} has autoscaling_config.{option}, which replicas know only "
            f"of a class with @pyserve.continuous, and {code} has none; write that above the "
            f"class, or use target_ongoing_requests, target_wait_s or target_p99_s"
        )
        self.deployment = deployment
        self.option = option


def check_step_targets(target: Any, options: DeploymentOptions) -> None:
    """Refuse targets that nothing could be measured for.

    Args:
        target: The class or the function.
        options: Of its deployment.

    Raises:
        StepTargetRefused: There is one.
    """
    if options.scaling is None or not options.scaling.step_targets:
        return
    # Late: most deployments have no such target, and their processes need nothing of this.
    from pyserve.stepping.decorator import is_continuous

    if not isinstance(target, type) or not is_continuous(target):
        name = options.name or target.__name__
        raise StepTargetRefused(name, target.__qualname__, options.scaling.step_targets[0])
