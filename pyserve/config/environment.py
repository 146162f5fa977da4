"""The process environment, read here and nowhere else.

Every setting is a ``PYSERVE_*`` variable; what is read becomes a frozen value that is passed on.
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import os
import re
import site
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyserve.config import logs, routing, telemetry, unneeded
from pyserve.config import variables as read
from pyserve.config.concurrency import ConcurrencySettings, read_concurrency
from pyserve.config.ingress import (
    ALIASES,
    OPTION_VARIABLES,
    DirectIngressSettings,
    IngressSettings,
    read_direct_settings,
    read_ingress_settings,
)
from pyserve.config.launchers import LauncherConfig, read_launcher
from pyserve.config.logs import LogSettings, read_encoding, read_level, read_log_settings
from pyserve.config.proxies import is_loopback
from pyserve.config.routing import RouterDefaults, read_router_defaults
from pyserve.config.telemetry import (
    MetricsSettings,
    TracingSettings,
    read_metrics_settings,
    read_tracing_settings,
)
from pyserve.config.tls import (
    SecuritySettings,
    TlsFiles,
    environment_of_files,
    read_mesh_tls,
    read_plain_tcp,
    read_security_settings,
)
from pyserve.config.validation import check_import_path, refuse
from pyserve.errors import OptionError

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/\s]+):(?P<port>[0-9]{1,5})\Z")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._\-]*[A-Za-z0-9.])?")

# Loopback, by both names that "localhost" has.
_LOOPBACK_HOSTS = ("127.0.0.1", "[::1]")
# Ray Serve's names for the same settings.
_ALIASES = {
    "PYSERVE_THROUGHPUT_OPTIMIZED": "RAY_SERVE_THROUGHPUT_OPTIMIZED",
    "PYSERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD",
    "PYSERVE_USE_GRPC_BY_DEFAULT": "RAY_SERVE_USE_GRPC_BY_DEFAULT",
    "PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH",
    "PYSERVE_HTTP_MIDDLEWARES": "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH",
    "PYSERVE_CONTROL_LOOP_INTERVAL_S": "RAY_SERVE_CONTROL_LOOP_INTERVAL_S",
    **ALIASES,
    **logs.ALIASES,
    **telemetry.ALIASES,
    **routing.ALIASES,
}
# Variables that Kubernetes sets in all containers near a Service named pyserve or pyserve-something
# (kubernetes.io/docs/concepts/services-networking/service, "Environment variables").
_OF_KUBERNETES = re.compile(
    r"PYSERVE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINK_OF_KUBERNETES = re.compile(r"(tcp|udp|sctp)://")
# Shorter likenesses are chance: half of every name is the same beginning. Arbitrary.
_LIKENESS_MIN = 0.8
# The length prefix is unsigned, but grpc's own peers stop at the signed range.
MESSAGE_BYTES_MAX = 2**31 - 1
# Each takes the memory of an idle replica for as long as the mesh lives. Arbitrary.
_SPARE_REPLICAS_MAX = 64
# The native side takes no more (`ARENA_BYTES_MAX`).
_SHARED_MEMORY_MIB_MAX = 1024
_PACKAGE_ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Where a process is and how others reach it.

    Attributes:
        node_id: name of the machine or container; equal names share a file system.
        zone: failure domain, "" when unknown.
        bind_host: where to listen; None: loopback, or everywhere if the controller is remote.
        advertise_host: what others should dial; None: the local address of the Join connection.
        tls: certificates for connections over TCP between processes of the mesh; None: plain.
        plain_tcp: without them the mesh token may be shown to other machines all the same.
        shared_memory_bytes: of each connection to a replica on this machine; 0: none.
    """

    node_id: str
    zone: str = ""
    bind_host: str | None = None
    advertise_host: str | None = None
    tls: TlsFiles | None = None
    plain_tcp: bool = False
    shared_memory_bytes: int = 8 << 20

    def may_carry_token(self, address: str) -> bool:
        """Say whether the mesh token may be shown at ``host:port`` or ``unix:path``.

        It may where only this machine sees it, or TLS hides it, or the operator allows it. A name
        may lead anywhere, so of names only ``localhost`` is taken for this machine.
        """
        is_seen_here = address.startswith("unix:") or is_loopback(address.rpartition(":")[0])
        return is_seen_here or self.tls is not None or self.plain_tcp


@dataclass(frozen=True, kw_only=True)
class CallSettings:
    """The defaults of calls and messages for handles and deployments.

    Attributes:
        by_reference: whether handles may leave large values where they were made; None: by size.
        message_bytes_max: limit of messages, received and sent; None: that of the options.
    """

    by_reference: bool | None = None
    message_bytes_max: int | None = None


@dataclass(frozen=True, kw_only=True)
class MeshSettings:
    """Which mesh a process belongs to.

    Attributes:
        home: private directory in which meshes of this user are found.
        controller: ``host:port`` or ``unix:path``; None: look in ``home``.
        controller_is_of: the variable or option that names it, for people.
        token_file: file with the mesh token; None: beside what ``home`` names.
        run_dir: the mesh's own directory for sockets; set by the launcher, None elsewhere.
        dashboard: ``host:port`` where a standing mesh answers REST; None: nowhere.
        development: whether a mesh that this process starts may tell clients the texts of
            exceptions.
        node: see ``NodeSettings``.
        logs: see ``LogSettings``.
        concurrency: see ``ConcurrencySettings``.
        calls: see ``CallSettings``.
        ingress: of a mesh that this process runs.
        direct_ingress: of a replica.
        security: of the ingress of a mesh that this process runs.
        routing: of the routers of this process.
        metrics: of this process's node.
        http_middlewares: import path of a function that returns what the plain HTTP of a replica
            stands behind; None: nothing.
        servicer_functions: import paths of generated ``add_XServicer_to_server``, whose services
            the ingress deployments of this mesh answer by methods of the same names.
        control_interval_s: the controller looks at its state so often at least; None: when
            something happens, or is due.
        spare_replicas: how many interpreters wait for replicas to start on this machine.
        tracing: of this process.
        launcher: what starts the replicas of a mesh that this process runs.
    """

    home: Path
    controller: str | None
    controller_is_of: str = "PYSERVE_CONTROLLER"
    token_file: Path | None
    run_dir: Path | None
    node: NodeSettings
    logs: LogSettings = field(default_factory=LogSettings)
    dashboard: str | None = None
    development: bool = False
    concurrency: ConcurrencySettings = field(default_factory=ConcurrencySettings)
    calls: CallSettings = field(default_factory=CallSettings)
    ingress: IngressSettings = field(default_factory=IngressSettings)
    direct_ingress: DirectIngressSettings = field(default_factory=DirectIngressSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    routing: RouterDefaults = field(default_factory=lambda: read_router_defaults({}))
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    http_middlewares: str | None = None
    servicer_functions: tuple[str, ...] = ()
    control_interval_s: float | None = None
    spare_replicas: int = 0
    tracing: TracingSettings = field(default_factory=TracingSettings)
    launcher: LauncherConfig = field(default_factory=LauncherConfig)


def use_tls_files(files: TlsFiles) -> None:
    """Make settings that are read later, here and in child processes, name these files.

    Other variables on TLS apply to these files too.
    """
    os.environ.update(environment_of_files(files))


def use_launcher(config: LauncherConfig) -> None:
    """Make meshes that are started later use this launcher."""
    os.environ.update(config.environment())


def use_access_log(*, is_on: bool) -> None:
    """Switch the access log of processes that are started later on or off."""
    os.environ["PYSERVE_ACCESS_LOG"] = "1" if is_on else "0"


def read_settings(environment: Mapping[str, str] | None = None) -> MeshSettings:
    """Read ``PYSERVE_*`` from ``environment`` (the process's own by default).

    It is silent about names that are older or unknown, see ``older_names`` and ``unknown_names``.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    return _settings(_renamed(os.environ if environment is None else environment))


def _settings(variables: Mapping[str, str]) -> MeshSettings:
    controller = variables.get("PYSERVE_CONTROLLER") or None
    if controller is not None:
        check_address("PYSERVE_CONTROLLER", controller, unix=True)
    dashboard = variables.get("PYSERVE_DASHBOARD_ADDRESS") or None
    if dashboard is not None:
        check_address("PYSERVE_DASHBOARD_ADDRESS", dashboard)
    direct, security = read_direct_settings(variables), read_security_settings(variables)
    if direct.enabled and security.access_file is not None:
        raise OptionError(
            "PYSERVE_DIRECT_INGRESS and PYSERVE_ACCESS_FILE are both set, but replicas do not know "
            "the access rules of the ingress; take one of them away"
        )
    return MeshSettings(
        home=_home(variables),
        controller=controller,
        token_file=read.path(variables, "PYSERVE_TOKEN_FILE"),
        run_dir=read.path(variables, "PYSERVE_RUN_DIR"),
        dashboard=dashboard,
        development=read.switch(variables, "PYSERVE_DEVELOPMENT"),
        node=NodeSettings(
            node_id=variables.get("PYSERVE_NODE_ID") or socket.gethostname(),
            zone=variables.get("PYSERVE_ZONE", ""),
            bind_host=read.host(variables, "PYSERVE_BIND_HOST"),
            advertise_host=_advertised(variables),
            tls=read_mesh_tls(variables),
            plain_tcp=read_plain_tcp(variables),
            shared_memory_bytes=read.mebibytes(
                variables, "PYSERVE_SHARED_MEMORY_MB", 8, maximum=_SHARED_MEMORY_MIB_MAX
            ),
        ),
        logs=read_log_settings(variables, _home(variables)),
        concurrency=read_concurrency(variables),
        calls=_calls(variables),
        ingress=read_ingress_settings(variables),
        direct_ingress=direct,
        security=security,
        routing=read_router_defaults(variables),
        metrics=read_metrics_settings(variables),
        http_middlewares=_import_path(variables, "PYSERVE_HTTP_MIDDLEWARES"),
        servicer_functions=_servicer_functions(variables),
        control_interval_s=read.limit_seconds(variables, "PYSERVE_CONTROL_LOOP_INTERVAL_S", None),
        spare_replicas=read.whole(
            variables, "PYSERVE_SPARE_REPLICAS", minimum=0, maximum=_SPARE_REPLICAS_MAX
        )
        or 0,
        tracing=read_tracing_settings(variables),
        launcher=read_launcher(variables),
    )


def read_tracing(changes: Mapping[str, str]) -> TracingSettings:
    """Read what this process traces, if the environment had these variables too.

    Raises:
        OptionError: as ``read_settings``.
    """
    return read_tracing_settings({**_renamed(os.environ), **changes})


def older_names(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return a line on each variable that has a name of Ray Serve, with ours or why none is.

    For drivers, commands and processes of a mesh that are started by themselves: children of one
    that says it are given the new names.
    """
    variables = os.environ if environment is None else environment
    lines = [
        f"{alias} is ignored, because {name} is set"
        if name in variables
        else f"{alias} is read as {name}; write {name}"
        for name, alias in _ALIASES.items()
        if alias in variables
    ]
    return lines + unneeded.lines_on(variables)


def names_debugger() -> bool:
    """Say whether ``PYTHONBREAKPOINT`` names what ``breakpoint()`` calls now."""
    return bool(os.environ.get("PYTHONBREAKPOINT"))


def unknown_names(environment: Mapping[str, str] | None = None) -> list[str]:
    """Return a line on each variable of ours or Ray Serve's that nothing reads.

    With what was meant, where a name is like one that is read.

    For drivers and commands: one process of a mesh says it, not all of them.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    variables = os.environ if environment is None else environment
    # The known names are those that the reader asks for, so no separate list can be out of date.
    asked = _Asked(_renamed(variables))
    _settings(asked)
    known = asked.names | {name for name in unneeded.NAMES if name.startswith("PYSERVE_")}
    lines = []
    for name in sorted(variables):
        if name.startswith("PYSERVE_") and name not in known and not _is_link(name, variables):
            near = difflib.get_close_matches(name, known, n=1, cutoff=_LIKENESS_MIN)
            meant = f"; did you mean {near[0]}?" if near else ""
            lines.append(f"{name} is no setting, and is ignored{meant}")
    return lines + unneeded.lines_on_strangers(variables, set(_ALIASES.values()))


def _is_link(name: str, variables: Mapping[str, str]) -> bool:
    return bool(
        _OF_KUBERNETES.fullmatch(name)
        or (name.endswith("_PORT") and _LINK_OF_KUBERNETES.match(variables[name]))
    )


class _Asked(Mapping[str, str]):
    """Variables, and the names that were looked for."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def read_call_settings(environment: Mapping[str, str] | None = None) -> CallSettings:
    """Read what is needed where no mesh is known yet: in decorators, and when one is attached.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    return _calls(_renamed(os.environ if environment is None else environment))


def read_log_defaults(
    environment: Mapping[str, str] | None = None,
) -> tuple[str | None, str | None]:
    """Return level and encoding of logs of deployments that name none; ``None``: not said.

    Raises:
        OptionError: a variable has a value that cannot be used.
    """
    given = os.environ if environment is None else environment
    # Looked for by name: a controller reads options often.
    variables = _renamed({name: given[name] for name in logs.OF_DEPLOYMENTS if name in given})
    level = read_level(variables) if variables.get("PYSERVE_LOG_LEVEL") else None
    return level, read_encoding(variables) if variables.get("PYSERVE_LOG_ENCODING") else None


def read_ingress_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that options of the ingress become, as far as they are set."""
    variables = _renamed(os.environ if environment is None else environment)
    return {name: variables[name] for name in OPTION_VARIABLES if name in variables}


def _calls(variables: Mapping[str, str]) -> CallSettings:
    by_value = read.switch(variables, "PYSERVE_USE_GRPC_BY_DEFAULT")
    return CallSettings(
        by_reference=False if by_value else None,
        message_bytes_max=read.size_bytes(
            variables, "PYSERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH", maximum=MESSAGE_BYTES_MAX
        ),
    )


def _renamed(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables with those of Ray Serve under our names, unless ours are set too."""
    older = {name: variables[alias] for name, alias in _ALIASES.items() if alias in variables}
    return {**older, **variables}


def inherited_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment for a child that imports pyserve, with ``changes``.

    A package that is not installed where the interpreter looks by itself is put on the child's
    ``PYTHONPATH``; nothing else of this process's ``sys.path`` goes that way.
    """
    environment = {**os.environ, **changes}
    for name, alias in _ALIASES.items():
        # This process has warned of the old name; its children are given the new one.
        if alias in environment:
            environment.setdefault(name, environment.pop(alias))
            environment.pop(alias, None)
    for name in unneeded.NAMES:
        environment.pop(name, None)
    if str(_PACKAGE_ROOT) not in site.getsitepackages():
        found = environment.get("PYTHONPATH", "").split(os.pathsep)
        others = [entry for entry in found if entry and entry != str(_PACKAGE_ROOT)]
        environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE_ROOT), *others])
    return environment


def change_environment(changed: Mapping[str, str], unset: Iterable[str]) -> None:
    """Give this process another environment, as if it had been started with it."""
    for name in unset:
        os.environ.pop(name, None)
    os.environ.update(changed)


def check_address(field: str, address: str, *, unix: bool = False) -> str:
    """Return ``address`` if it is ``host:port`` (or ``unix:path``, where ``unix`` allows it)."""
    if unix and address.startswith("unix:") and len(address) > len("unix:"):
        return address
    match = _ADDRESS.match(address)
    if match is None or int(match["port"]) > 65535:
        allowed = "HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:8000 or [::1]:8000"
        raise refuse(field, address, allowed + (", or unix:PATH" if unix else ""))
    return address


def host_port(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def default_addresses(settings: MeshSettings) -> tuple[str, ...]:
    """Return where an ingress listens when nobody says it."""
    host = settings.node.bind_host
    hosts = _LOOPBACK_HOSTS if host is None else (host,)
    return tuple(host_port(each, settings.ingress.port) for each in hosts)


def _import_path(variables: Mapping[str, str], name: str) -> str | None:
    value = variables.get(name) or None
    return None if value is None else check_import_path(name, value)


def _servicer_functions(variables: Mapping[str, str]) -> tuple[str, ...]:
    name = "PYSERVE_GRPC_SERVICER_FUNCTIONS"
    paths = variables.get(name, "").split(",")
    return tuple(check_import_path(name, path.strip()) for path in paths if path.strip())


def _advertised(variables: Mapping[str, str]) -> str | None:
    """Read the host that others dial, which this machine need not be able to resolve."""
    value = variables.get("PYSERVE_ADVERTISE_HOST") or None
    if value is not None and not (_HOST.fullmatch(value) or _is_ipv6(value)):
        allowed = "a host name or an address without a port, such as node-7.example.com or 10.0.0.7"
        raise refuse("PYSERVE_ADVERTISE_HOST", value, allowed)
    return None if value is None else value.strip("[]")


def _is_ipv6(value: str) -> bool:
    try:
        return bool(ipaddress.IPv6Address(value.strip("[]")))
    except ValueError:
        return False


def _home(variables: Mapping[str, str]) -> Path:
    if variables.get("PYSERVE_HOME"):
        return Path(variables["PYSERVE_HOME"]).absolute()
    if variables.get("XDG_RUNTIME_DIR"):
        return Path(variables["XDG_RUNTIME_DIR"]) / "pyserve"
    if (state := _state_folder(variables)) is not None:
        # Machines may share home directories, and a mesh belongs to one machine.
        return state / "pyserve" / socket.gethostname()
    # One directory per user; the code that makes it checks owner and mode before trusting it.
    return Path(tempfile.gettempdir()) / f"pyserve-{os.getuid()}"


def _state_folder(variables: Mapping[str, str]) -> Path | None:
    """Return where files of this user are safe from cleaners of temporary folders, if anywhere.

    Users of containers often have no home directory, or one that they may not write to, or not
    even look into (``HOME=/root`` with another user).
    """
    if variables.get("XDG_STATE_HOME"):
        folder = Path(variables["XDG_STATE_HOME"])
    elif variables.get("HOME"):
        folder = Path(variables["HOME"]) / ".local" / "state"
    else:
        return None
    may = functools.partial(os.access, effective_ids=True)
    there = next((each for each in (folder, *folder.parents) if may(each, os.F_OK)), None)
    usable = folder.is_absolute() and there is not None and may(there, os.W_OK | os.X_OK)
    return folder if usable else None
