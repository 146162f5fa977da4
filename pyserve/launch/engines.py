"""Finds a mesh's launcher: one of pyserve's by name, or the user's own by import path.

The packages that a launcher needs are an extra of pyserve, imported only when it is chosen.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from pyserve import working_folder
from pyserve.api.code import import_attribute
from pyserve.config.capabilities import Capabilities
from pyserve.config.launchers import PROCESS, LauncherConfig
from pyserve.config.validation import check_import_path
from pyserve.control.reconcile.start_limits import Room
from pyserve.control.replicas.launching import Events, Launcher, ReplicaOrder
from pyserve.errors import MeshError
from pyserve.launch.environments import Environments
from pyserve.launch.lasting import LastingLocalLauncher
from pyserve.launch.local import LocalLauncher
from pyserve.launch.site import Site
from pyserve.types import ReplicaId


def make_launcher(config: LauncherConfig, site: Site) -> Launcher:
    """Return the launcher that was chosen.

    Raises:
        MeshError: there is none, or it cannot be made; the text has its name.
    """
    name = config.name
    make = _OURS.get(name)
    try:
        if make is None:
            make = _imported(name)
        launcher = make(site)
    except MeshError:
        raise
    except Exception as error:
        raise MeshError(f"the launcher {name!r} cannot be made: {error}") from error
    if not isinstance(launcher, Launcher):
        missing = sorted(_members() - set(dir(launcher)))
        raise MeshError(
            f"the launcher {name!r} lacks {', '.join(missing)}; docs/guide/launchers.md shows "
            f"what a launcher has"
        )
    return launcher


def notices_of(launcher: Launcher) -> Sequence[str]:
    """Return notices for users about an engine; its launcher may have ``notices``."""
    found: Callable[[], Sequence[str]] = getattr(launcher, "notices", tuple)
    return found()


def _process(site: Site) -> Launcher:
    kind = LastingLocalLauncher if site.is_lasting else LocalLauncher
    return kind(
        controller=site.controller,
        token=site.token,
        run_dir=site.run_dir,
        on_line=site.on_line,
        on_output=site.on_output,
        environments=Environments(site.home / "environments"),
        spares=site.spares,
        liveness=site.liveness,
    )


def _external(_: Site) -> Launcher:
    return ExternalLauncher()


def _kubernetes(site: Site) -> Launcher:
    try:
        from pyserve.launch.on_kubernetes.launcher import KubernetesLauncher
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kubernetes_asyncio":
            raise
        raise MeshError(
            "the launcher 'kubernetes' needs a client of Kubernetes; install it with "
            "`pip install 'pyserve-mesh[kubernetes]'`"
        ) from error
    return KubernetesLauncher(site)


def _ray(site: Site) -> Launcher:
    from pyserve.launch.on_ray.launcher import RayLauncher

    return RayLauncher(site)


_OURS: Mapping[str, Callable[[Site], Launcher]] = {
    PROCESS: _process,
    "external": _external,
    "kubernetes": _kubernetes,
    "ray": _ray,
}


def _imported(name: str) -> Callable[[Site], Launcher]:
    if ":" not in name and "." not in name:
        near = difflib.get_close_matches(name, _OURS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_OURS)}"
        raise MeshError(
            f"there is no launcher {name!r}; {hint}; one of your own is written MODULE:ATTRIBUTE"
        )
    with working_folder.importable():
        made = import_attribute(check_import_path("launcher", name))
    return cast("Callable[[Site], Launcher]", made)


def _members() -> set[str]:
    return {name for name, _ in inspect.getmembers(Launcher) if not name.startswith("_")}


# Replicas that are started from outside: `pyserve replica` by compose, systemd or others.
#
# Such replicas can join every mesh (`pyserve.control.replicas.members`). With this launcher a
# mesh has no others: it starts nothing itself, and refuses deploys with that reason.

_STARTS_NONE = (
    "it starts no replicas, others do; start each with `pyserve replica MODULE:ATTRIBUTE "
    "--deployment NAME`, or the mesh with another launcher"
)


class ExternalLauncher:
    """Starts nothing, and has no processes to watch."""

    name = "external"
    capabilities = Capabilities(starts_none=_STARTS_NONE)

    def __init__(self) -> None:
        self._events = Events()

    async def open(self) -> None:
        """See ``Launcher.open``; there is nothing to prepare."""

    async def start(self, order: ReplicaOrder) -> int:
        """Refuse it: of a deploy that was let in by a controller with another launcher."""
        raise OSError(f"the launcher {self.name!r} has no {order.replica_id}: {_STARTS_NONE}")

    def stop(self, replica_id: ReplicaId, grace_s: float) -> None:
        """See ``Launcher.stop``; an external replica gets this over its stream, and ends itself."""

    def room(self) -> Room:
        """Return room for one start at a time; each of them fails."""
        return Room(starts_max=1, why=_STARTS_NONE)

    def watch(self) -> Events:
        """See ``Launcher.watch``; external replicas report their state over their own streams."""
        return self._events

    async def close(self) -> None:
        """End the watch; see ``Launcher.close``."""
        self._events.close()
