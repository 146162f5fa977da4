"""Variables and options that are accepted without effect, each with a reason for the user.

Code for Ray Serve has them, and it should run unchanged, so they are not errors. But none of them
is ignored silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyserve.config.options import DeploymentOptions
    from pyserve.config.routing import RequestRouterConfig

PAGE = "docs/reference/deployment-options.md"
_LOOPS = "the router is native and has threads of its own"
_COLLECTED = "a replica takes what it has loaded out of the garbage collector's way in any case"
_SPEAKS_GRPC = "the ingress speaks gRPC to replicas in any case"
_REASONS = {
    "RAY_SERVE_ENABLE_HA_PROXY": (
        "the ingress is native; `pyserve haproxy-config` puts HAProxy in front of a mesh"
    ),
    "RAY_SERVE_CONTROLLER_MAX_CONCURRENCY": (
        "a process has one stream to the controller, however many handles it has"
    ),
    "RAY_SERVE_MAX_CACHED_HANDLES": "handles share the router of their process",
    **dict.fromkeys(
        ("RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP", "PYSERVE_RUN_ROUTER_IN_SEPARATE_LOOP"), _LOOPS
    ),
    **dict.fromkeys(("RAY_SERVE_FREEZE_GC_ON_STARTUP", "PYSERVE_FREEZE_GC_ON_STARTUP"), _COLLECTED),
    **dict.fromkeys(("RAY_SERVE_PROXY_USE_GRPC", "PYSERVE_PROXY_USE_GRPC"), _SPEAKS_GRPC),
}
NAMES = frozenset(_REASONS)

# What launchers pass over is theirs to say, see ``capabilities``.
_OPTIONS = {"graceful_shutdown_wait_loop_s": "a replica that drains ends as soon as it is idle"}
_OF_LAUNCHERS = (
    "env_vars",
    "working_dir",
    "pip",
    "resources",
    "max_replicas_per_node",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
    "pod_template",
    "gang_scheduling_config",
)
_OF_ENVIRONMENTS = {
    "excludes": "a working_dir is used where it is, and nothing of it is copied",
    "config": "nothing is prepared but what pip installs, within startup_timeout_s",
    "_ray_commit": "there is no Ray here",
}
_OF_PIP = dict.fromkeys(("pip_check", "pip_version"), "uv installs the packages")
_VERSION = "the mesh tells versions apart by their code and options"
_ASKS_NOBODY = "only policies that are classes are told what record_routing_stats returns"
_METRICS_INTERVAL = "the mesh measures on its own time"


def lines_on(variables: Mapping[str, str]) -> list[str]:
    """Return a line on each of the variables that is set."""
    return [
        f"{name} has no effect: {reason}" for name, reason in _REASONS.items() if name in variables
    ]


def lines_on_strangers(variables: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return a line on each variable of Ray Serve that is not known at all."""
    return [
        f"{name} is no setting that pyserve knows, and is ignored; docs/reference/environment.md "
        f"has those that it does"
        for name in sorted(variables)
        if name.startswith("RAY_SERVE_") and name not in known and name not in NAMES
    ]


def lines_on_written(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return a line on what somebody wrote among options that no option keeps."""
    return tuple(_of_written(given))


def lines_on_options(options: DeploymentOptions) -> list[str]:
    """Return a line on each option that differs from its default and changes nothing."""
    default = type(options)()
    lines = [
        f"{name} has no effect: {reason}"
        for name, reason in _OPTIONS.items()
        if getattr(options, name) != getattr(default, name)
    ]
    lines += _of_routing(options.request_router_config)
    scaling = options.autoscaling_config
    if getattr(scaling, "metrics_interval_s", None) is not None:
        lines.append(f"autoscaling_config.metrics_interval_s has no effect: {_METRICS_INTERVAL}")
    return [*lines, *options.unkept]


def _of_routing(config: RequestRouterConfig) -> Iterator[str]:
    default = type(config)()
    for name in ("request_routing_stats_period_s", "request_routing_stats_timeout_s"):
        if not config.policy_path and getattr(config, name) != getattr(default, name):
            yield f"request_router_config.{name} has no effect: {_ASKS_NOBODY}"


def lines_on_local(options: DeploymentOptions) -> list[str]:
    """Return a line on each option that only replicas with processes of their own follow."""
    default = type(options)()
    return [
        f"{name} has no effect in local testing mode, which runs in this process"
        for name in _OF_LAUNCHERS
        if getattr(options, name) != getattr(default, name)
    ]


def without(given: Mapping[str, object]) -> dict[str, object]:
    """Return the ``runtime_env`` that is left of what somebody wrote."""
    return {name: value for name, value in given.items() if name not in _OF_ENVIRONMENTS}


def _of_written(given: Mapping[str, object]) -> Iterator[str]:
    if given.get("version") is not None:
        yield f"version has no effect: {_VERSION}"
    actor = given.get("ray_actor_options")
    within = actor.get("runtime_env") if isinstance(actor, Mapping) else None
    for environment in (given.get("runtime_env"), within):
        yield from _of_part("runtime_env", environment, _OF_ENVIRONMENTS)
        if isinstance(environment, Mapping):
            for name in ("pip", "uv"):
                yield from _of_part(f"runtime_env.{name}", environment.get(name), _OF_PIP)
    yield from _of_part("pip", given.get("pip"), _OF_PIP)


def _of_part(field: str, value: object, reasons: Mapping[str, str]) -> Iterator[str]:
    for name, reason in reasons.items():
        if isinstance(value, Mapping) and value.get(name) is not None:
            yield f"{field}.{name} has no effect: {reason}"
