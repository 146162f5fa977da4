"""The agent's calls to Ray. Each function may wait for the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import socket
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import grpc.aio
import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from pyserve.errors import MeshError
from pyserve.launch.on_ray.resource_request import Node, ResourceRequest

_LOGGER = logging.getLogger(__name__)
_LISTENING_WITHIN_S = 5.0
# If the head is back within this time, only the connection was broken.
_BACK_WITHIN_S = 1.0
# A head whose machine is gone says nothing.
_KEEPALIVE = (("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000))
_NEVER_MS = 2**31 - 1
_NAMES = ("class_name:", "actor_id:", "namespace:", "name:", "pid:", "ip:")


def connect(address: str, namespace: str) -> None:
    """Connect with a cluster that runs.

    Args:
        address: where, ``host:port`` or ``auto`` for the one of this machine.
        namespace: of the names of actors.

    Raises:
        MeshError: No cluster runs there, or it refuses the connection.
    """
    # Of what it cannot do in a thread; what it cannot do at all it raises.
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        _check_listening(address)
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, TimeoutError, socket.gaierror) as error:
        raise MeshError(
            f"no Ray cluster runs at {address!r}; start one with `ray start --head`, or name one "
            f"with --ray-address"
        ) from error
    except (RuntimeError, ValueError, OSError, RayError) as error:
        # Among them another version, of Ray or of Python, in several lines.
        said = " ".join(str(error).split())
        raise MeshError(f"the Ray cluster at {address!r} cannot be used: {said}") from error


def _check_listening(address: str) -> None:
    """Raise ``ConnectionError`` if nothing listens there, which Ray takes a minute to report."""
    host, separator, port = address.rpartition(":")
    if separator and port.isdecimal() and "://" not in address:
        with socket.create_connection((host.strip("[]"), int(port)), _LISTENING_WITHIN_S):
            pass


def disconnect() -> None:
    """Let go of the cluster."""
    ray.shutdown()


def own_node() -> str:
    """Return Ray's id of the node that this process is on."""
    found: str = ray.get_runtime_context().get_node_id()
    return found


def gcs_address() -> str:
    """Return where others connect with the cluster."""
    found: str = ray.get_runtime_context().gcs_address
    return found


def nodes() -> list[Node]:
    """Return the live nodes."""
    ask: Any = ray.nodes  # It has no types.
    return [
        Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"])
        for each in ask()
        if each["Alive"]
    ]


def free() -> dict[str, dict[str, float]]:
    """Return the free resources of each node, by its id."""
    # Ray Serve uses this too: Ray has no public function for it.
    ask: Any = ray._private.state.available_resources_per_node  # noqa: SLF001
    found: dict[str, dict[str, float]] = ask()
    return found


def actors() -> dict[str, Any]:
    """Return the actors of our namespace, by their names."""
    found = {}
    for name in ray.util.list_named_actors():
        with contextlib.suppress(ValueError):  # It has ended meanwhile.
            found[name] = ray.get_actor(name)
    return found


def groups(prefix: str) -> dict[str, Any]:
    """Return the placement groups whose names have this prefix, by their names."""
    found = {}
    for each in ray.util.placement_group_table().values():
        if each["name"].startswith(prefix) and each["state"] != "REMOVED":
            with contextlib.suppress(ValueError):  # It was removed meanwhile.
                found[each["name"]] = ray.util.get_placement_group(each["name"])
    return found


def make_group(name: str, requested: ResourceRequest, *, is_detached: bool) -> Any:
    """Make the placement group of a replica or of its gang; the cluster places it when it can.

    Raises:
        OSError: Ray will not have it.
    """
    with _refusals():
        return placement_group(
            [dict(each) for each in requested.bundles],
            strategy=requested.strategy,
            name=name,
            lifetime="detached" if is_detached else None,
            bundle_label_selector=[dict(each) for each in requested.bundle_labels] or None,
        )


def make_actor(
    kind: type,
    name: str,
    requested: ResourceRequest,
    group: Any,
    *,
    is_detached: bool,
    node: str = "",
    may_differ: bool = False,
) -> Any:
    """Make an actor; the cluster places it when it can.

    Args:
        kind: its class.
        name: in our namespace.
        requested: what it asks for.
        group: that it lies in, or ``None``.
        is_detached: it outlives this process.
        node: where it has to lie; "": anywhere.
        may_differ: it may lie elsewhere where that node has no room.

    Raises:
        OSError: Ray will not have it.
    """
    options: dict[str, object] = dict(requested.actor)
    if node:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
            node, soft=may_differ, _spill_on_unavailable=may_differ
        )
    if group is not None:
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            group,
            placement_group_bundle_index=requested.bundle,
            placement_group_capture_child_tasks=True,
        )
    lifetime = "detached" if is_detached else None
    with _refusals():
        if requested.working_dir:
            given = options.get("runtime_env")
            environment = dict(given) if isinstance(given, Mapping) else {}
            options["runtime_env"] = {**environment, "working_dir": upload(requested.working_dir)}
        remote: Any = ray.remote(kind)
        return remote.options(name=name, lifetime=lifetime, max_restarts=0, **options).remote()


def upload(folder: str) -> str:
    """Return a URI from which the nodes of the cluster get a folder or zip archive of this machine.

    The same content is uploaded only once. Ray itself does this only for whole jobs.
    """
    from ray._private.runtime_env.working_dir import upload_working_dir_if_needed

    # Ray leaves out files that git ignores; older releases have no option for that.
    known = inspect.signature(upload_working_dir_if_needed).parameters
    also: dict[str, Any] = {"include_gitignore": True} if "include_gitignore" in known else {}
    with tempfile.TemporaryDirectory() as scratch:
        found = upload_working_dir_if_needed(
            {"working_dir": folder}, scratch_dir=scratch, logger=_LOGGER, **also
        )
    return str(found["working_dir"])


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RuntimeError, RayError) as error:
        raise OSError(f"Ray refuses it: {' '.join(str(error).split())}") from error


def end(actor: Any) -> None:
    """End an actor at once."""
    with contextlib.suppress(RayError, ValueError):
        ray.kill(actor)


def remove(group: Any) -> None:
    """Give back what a placement group holds; what runs in it ends."""
    remove_placement_group(group)


def why_lost(error: RayError) -> str:
    """Return how the actor of an error has ended."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not isinstance(error, ActorDiedError):
        return f"was lost: {' '.join(said)}"
    # Between the first line and the reason are names of the actor that are unknown here.
    told = [line for line in said[1:] if not line.startswith(_NAMES)]
    return f"was lost: {' '.join(told or said)}"


async def until_lost() -> None:
    """Wait until the connection to the head breaks and cannot be restored."""
    options = (("grpc.client_idle_timeout_ms", _NEVER_MS), *_KEEPALIVE)
    async with grpc.aio.insecure_channel(gcs_address(), options=options) as channel:
        # For ever where it wants TLS of its clients: there the end of this process will tell.
        await channel.channel_ready()
        with contextlib.suppress(TimeoutError):
            while True:
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                async with asyncio.timeout(_BACK_WITHIN_S):
                    await channel.channel_ready()
