"""Options: in the decorator, changed by ``options``, and a ``user_config`` that is taken on."""

from typing import Any

import pyserve as serve
from pyserve.config import AutoscalingConfig


@serve.deployment(
    name="Threshold",
    num_replicas=2,
    ray_actor_options={"num_cpus": 0.1},
    max_ongoing_requests=10,
    health_check_period_s=10,
    health_check_timeout_s=30,
    graceful_shutdown_timeout_s=20,
    graceful_shutdown_wait_loop_s=2,
    user_config={"threshold": 0.5},
)
class Model:
    def __init__(self) -> None:
        self.threshold: float | None = None

    def reconfigure(self, config: dict[str, Any]) -> None:
        self.threshold = config["threshold"]

    def __call__(self, score: float) -> str:
        assert self.threshold is not None
        return "spam" if score > self.threshold else "ham"


app = Model.options(num_replicas=1).bind()
stricter = Model.options(num_replicas=1, user_config={"threshold": 0.25}).bind()
autoscaled = Model.options(
    name="Autoscaled",
    num_replicas="auto",
    autoscaling_config=AutoscalingConfig(
        min_replicas=1, max_replicas=2, target_ongoing_requests=2, upscale_delay_s=3
    ),
).bind()
