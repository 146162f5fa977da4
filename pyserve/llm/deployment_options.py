"""The options of the deployment of an ``LLMConfig``."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyserve.config.options import check_name
from pyserve.errors import UsageError
from pyserve.llm.engine_names import is_on_gpu, workers_of
from pyserve.llm.experimental import DP_SIZE_PER_NODE, lines_on_experiments
from pyserve.llm.request_router import usual_policy

if TYPE_CHECKING:
    from pyserve.llm.config import LLMConfig

_LOGGER = logging.getLogger(__name__)
# Engines batch their requests, so a replica accepts more calls than other classes do. Further calls
# wait in the routers, which send them to the first replica with room. Ray Serve has no such limit.
_ONGOING_MAX = 512
_DEFAULTS: Mapping[str, object] = {
    "health_check_period_s": 10.0,
    "health_check_timeout_s": 10.0,
    # Weights may have to be downloaded and compiled for; as in Ray Serve LLM.
    "startup_timeout_s": 3600.0,
}
_NAME_CHARACTERS_MAX = 63
_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


def options_of(config: LLMConfig) -> dict[str, Any]:
    """Return the options, as ``Deployment.options`` takes them.

    Raises:
        OptionError: One is not allowed.
        UsageError: The sizes of the engine do not fit.
    """
    for line in lines_on_experiments(config.experimental_configs):
        _LOGGER.warning("%s: %s", config.model_id, line)
    options: dict[str, Any] = dict(_DEFAULTS) | usual_policy(deepcopy(config.deployment_config))
    options.setdefault("max_ongoing_requests", ongoing_max(config))
    _set_target(options)
    _set_resources(options, config)
    return options


def ongoing_max(config: LLMConfig) -> int:
    """Return how many calls a replica takes at once: twice the engine's batch, if that is known."""
    found = config.engine_kwargs.get("max_num_seqs")
    return 2 * found if isinstance(found, int) and found > 0 else _ONGOING_MAX


def deployment_name(prefix: str, model_id: str) -> str:
    """Return the name of a model's deployment, as names may be.

    Args:
        prefix: Before the model; a colon at its end becomes a dash.
        model_id: Its slashes become two dashes, and its dots underscores, as in Ray Serve LLM.
    """
    model = model_id.replace("/", "--").replace(".", "_")
    name = re.sub(r"[^A-Za-z0-9_.\-]", "-", f"{prefix}{model}")
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    if len(name) > _NAME_CHARACTERS_MAX:
        digest = sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: _NAME_CHARACTERS_MAX - 9]}-{digest}"
    return check_name("name", name)


def _set_target(options: dict[str, Any]) -> None:
    scaling = options.get("autoscaling_config")
    if isinstance(scaling, Mapping):
        # A replica with half of the calls that it accepts is busy: time to start another one.
        target = options["max_ongoing_requests"] / 2
        options["autoscaling_config"] = {"target_ongoing_requests": target, **scaling}


def _set_resources(options: dict[str, Any], config: LLMConfig) -> None:
    actor = dict(options.pop("ray_actor_options", None) or {})
    if (resources := options.pop("resources", None)) is not None:
        actor |= resources if isinstance(resources, Mapping) else resources.model_dump()
    runtime_env = _merged(actor.get("runtime_env"), options.pop("runtime_env", None))
    actor["runtime_env"] = _merged(runtime_env, config.runtime_env)
    if config.accelerator_type is not None:
        actor.setdefault("accelerator_type", config.accelerator_type)
    if (placement := config.placement_group_config) is not None:
        _add_workers(actor, placement.total(workers_of(config)))
    elif is_on_gpu(config):
        actor.setdefault("num_gpus", workers_of(config))
    options["ray_actor_options"] = actor


def _add_workers(actor: dict[str, Any], workers: dict[str, float]) -> None:
    """Reserve the resources of the workers for the replica, since they run beside it."""
    named = dict(actor.get("resources") or {})
    for name, amount in workers.items():
        option = _RESOURCES.get(name)
        place, key = (named, name) if option is None else (actor, option)
        place[key] = (place.get(key) or 0.0) + amount
    if named:
        actor["resources"] = named


def _merged(base: Mapping[str, Any] | None, above: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {**(base or {}), **(above or {})}
    variables = {**((base or {}).get("env_vars") or {}), **((above or {}).get("env_vars") or {})}
    return found | ({"env_vars": variables} if variables else {})


def check_group(config: LLMConfig) -> None:
    """Refuse a data parallel group that one replica cannot hold.

    Raises:
        UsageError: It spans machines.
    """
    workers_of(config)  # Rejects sizes that are not positive integers.
    size = config.engine_kwargs.get("data_parallel_size", 1)
    per_node = config.experimental_configs.get(DP_SIZE_PER_NODE, size)
    if per_node != size:
        raise UsageError(
            f"experimental_configs.{DP_SIZE_PER_NODE}={per_node} with data_parallel_size={size}: "
            f"a replica holds a whole data parallel group on one machine; choose a "
            f"data_parallel_size that a machine has room for, and more num_replicas"
        )
