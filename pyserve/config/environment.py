"""The process environment, read here and nowhere else.

Every setting is a ``PYSERVE_*`` variable; what is read becomes a frozen value that is passed on.
"""

from __future__ import annotations

import os
import re
import site
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyserve.config.validation import refuse

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/\s]+):(?P<port>[0-9]{1,5})\Z")

_PACKAGE_ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Where a process is and how others reach it.

    Attributes:
        node_id: name of the machine or container; equal names share a file system.
        zone: failure domain, "" when unknown.
        bind_host: where to listen; None: loopback, or everywhere if the controller is remote.
        advertise_host: what others should dial; None: the local address of the Join connection.
        log_dir: where log files go, None for standard error only.
    """

    node_id: str
    zone: str = ""
    bind_host: str | None = None
    advertise_host: str | None = None
    log_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class MeshSettings:
    """Which mesh a process belongs to.

    Attributes:
        home: private directory in which meshes of this user are found.
        controller: ``host:port`` or ``unix:path``; None: look in ``home``.
        token_file: file with the mesh token; None: beside what ``home`` names.
        run_dir: the mesh's own directory for sockets; set by the launcher, None elsewhere.
        development: whether a mesh that this process starts may tell clients the texts of
            exceptions.
        node: see ``NodeSettings``.
    """

    home: Path
    controller: str | None
    token_file: Path | None
    run_dir: Path | None
    node: NodeSettings
    development: bool = False


def read_settings(environment: Mapping[str, str] | None = None) -> MeshSettings:
    """Read ``PYSERVE_*`` from ``environment`` (the process's own by default).

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    variables = os.environ if environment is None else environment
    controller = variables.get("PYSERVE_CONTROLLER") or None
    if controller is not None:
        check_address("PYSERVE_CONTROLLER", controller, unix=True)
    return MeshSettings(
        home=_home(variables),
        controller=controller,
        token_file=_path(variables, "PYSERVE_TOKEN_FILE"),
        run_dir=_path(variables, "PYSERVE_RUN_DIR"),
        development=_switch(variables, "PYSERVE_DEVELOPMENT"),
        node=NodeSettings(
            node_id=variables.get("PYSERVE_NODE_ID") or socket.gethostname(),
            zone=variables.get("PYSERVE_ZONE", ""),
            bind_host=variables.get("PYSERVE_BIND_HOST") or None,
            advertise_host=variables.get("PYSERVE_ADVERTISE_HOST") or None,
            log_dir=_path(variables, "PYSERVE_LOG_DIR"),
        ),
    )


def inherited_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child that imports pyserve, with ``changes``.

    A package that is not installed where the interpreter looks by itself is put on the child's
    ``PYTHONPATH``; nothing else of this process's ``sys.path`` goes that way.
    """
    environment = {**os.environ, **changes}
    if str(_PACKAGE_ROOT) not in site.getsitepackages():
        found = environment.get("PYTHONPATH", "").split(os.pathsep)
        others = [entry for entry in found if entry and entry != str(_PACKAGE_ROOT)]
        environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE_ROOT), *others])
    return environment


def check_address(field: str, address: str, *, unix: bool = False) -> str:
    """Return ``address`` if it is ``host:port`` (or ``unix:path``, where ``unix`` allows it)."""
    if unix and address.startswith("unix:") and len(address) > len("unix:"):
        return address
    match = _ADDRESS.match(address)
    if match is None or int(match["port"]) > 65535:
        allowed = "HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:8000 or [::1]:8000"
        raise refuse(field, address, allowed + (", or unix:PATH" if unix else ""))
    return address


def _home(variables: Mapping[str, str]) -> Path:
    if variables.get("PYSERVE_HOME"):
        return Path(variables["PYSERVE_HOME"]).absolute()
    if variables.get("XDG_RUNTIME_DIR"):
        return Path(variables["XDG_RUNTIME_DIR"]) / "pyserve"
    # One directory a user; whoever makes it checks owner and mode before trusting it.
    return Path(tempfile.gettempdir()) / f"pyserve-{os.getuid()}"


def _switch(variables: Mapping[str, str], name: str) -> bool:
    value = variables.get(name, "")
    if value not in ("", "0", "1"):
        raise refuse(name, value, "1 for yes, 0 or nothing for no")
    return value == "1"


def _path(variables: Mapping[str, str], name: str) -> Path | None:
    return Path(variables[name]).absolute() if variables.get(name) else None
