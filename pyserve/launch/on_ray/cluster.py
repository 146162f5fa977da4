"""All that is asked of Ray by the controller. Each function may wait for the cluster."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pyserve.errors import MeshError
from pyserve.launch.on_ray.actor import ReplicaActor
from pyserve.launch.on_ray.wishes import Node, Wishes

_LOGGER = logging.getLogger(__name__)
# The first one whose actors take label_selector and fallback_strategy.
_VERSION_MIN = (2, 49)
_LISTENING_WITHIN_S = 5.0
_NAMES = ("class_name:", "actor_id:", "namespace:", "name:", "pid:", "ip:")


@dataclass(frozen=True, slots=True)
class Held:
    """What one replica has of the cluster: its actor, and the placement group that it lies in."""

    actor: Any
    group: Any = None


def connect(address: str, namespace: str) -> None:
    """Connect with a cluster that runs.

    Args:
        address: where, ``host:port`` or ``auto`` for the one of this machine.
        namespace: of the names of actors.

    Raises:
        MeshError: None runs there, or it will not have us.
    """
    if tuple(map(int, ray.__version__.split(".")[:2])) < _VERSION_MIN:
        needed = ".".join(map(str, _VERSION_MIN))
        raise MeshError(
            f"Ray {ray.__version__} is too old for the launcher 'ray'; install Ray {needed} or "
            f"later here and on the cluster"
        )
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
    """Raise ``ConnectionError`` where nobody listens, which Ray takes a minute to say."""
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
    """Return the nodes that live."""
    ask: Any = ray.nodes  # It has no types.
    return [
        Node(each["NodeID"], each["NodeManagerAddress"], each["Resources"])
        for each in ask()
        if each["Alive"]
    ]


def actors() -> dict[str, Held]:
    """Return the actors of our namespace, by their names."""
    found = {}
    for name in ray.util.list_named_actors():
        with contextlib.suppress(ValueError):  # It has ended meanwhile.
            found[name] = Held(ray.get_actor(name), _group_of(name))
    return found


def _group_of(name: str) -> Any:
    try:
        return ray.util.get_placement_group(name)
    except ValueError:
        return None


def create(name: str, wishes: Wishes, *, is_detached: bool) -> Held:
    """Make the actor of a replica, and what it lies in; the cluster places it when it can.

    Raises:
        OSError: Ray will not have it.
    """
    lifetime = "detached" if is_detached else None
    options: dict[str, object] = dict(wishes.actor)
    group = None
    try:
        if wishes.bundles:
            group = placement_group(
                [dict(each) for each in wishes.bundles],
                strategy=wishes.strategy,
                name=name,
                lifetime=lifetime,
                bundle_label_selector=[dict(each) for each in wishes.bundle_labels] or None,
            )
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        kind: Any = ray.remote(ReplicaActor)
        actor = kind.options(name=name, lifetime=lifetime, max_restarts=0, **options).remote()
    except (ValueError, TypeError, RuntimeError, RayError) as error:
        if group is not None:
            remove_placement_group(group)
        raise OSError(f"Ray refuses it: {' '.join(str(error).split())}") from error
    return Held(actor, group)


def release(held: Held) -> None:
    """Give back what a replica had; what runs of it ends at once."""
    with contextlib.suppress(RayError, ValueError):
        ray.kill(held.actor)
    if held.group is not None:
        remove_placement_group(held.group)


def why_lost(error: RayError) -> str:
    """Return how an actor has ended, of which an error tells."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not isinstance(error, ActorDiedError):
        return f"was lost: {' '.join(said)}"
    # Between the first line and the reason are names of the actor that nobody knows here.
    told = [line for line in said[1:] if not line.startswith(_NAMES)]
    return f"was lost: {' '.join(told or said)}"
