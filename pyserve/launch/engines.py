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
from pyserve.config.launchers import PROCESS, LauncherConfig
from pyserve.config.validation import check_import_path
from pyserve.control.replicas.launching import Launcher
from pyserve.errors import MeshError
from pyserve.launch.environments import Environments
from pyserve.launch.external import ExternalLauncher
from pyserve.launch.lasting import LastingLocalLauncher
from pyserve.launch.local import LocalLauncher
from pyserve.launch.site import Site


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
