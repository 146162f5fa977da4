"""What ``pyserve doctor`` looks at: this machine, the files of the mesh, its processes and more.

Each check returns findings, and none of them changes anything.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pyserve.aio.certificates import check_server_files, date, lifetime_s
from pyserve.config import MeshSettings, default_addresses, older_names, unknown_names
from pyserve.config.tls import TlsFiles
from pyserve.control.discovery import read_record
from pyserve.control.home import read_token
from pyserve.driver.doctor_mesh import Finding, check_mesh, notice, ok, wrong
from pyserve.driver.doctor_mesh import ok as fine
from pyserve.errors import MeshError, OptionError
from pyserve.folders import PrivateFolder


def examine(settings: MeshSettings) -> Iterator[Finding]:
    """Yield what was found, in the order in which it was looked at.

    Args:
        settings: Of the mesh to look at, which need not run.
    """
    yield from check_environment()
    parts = (
        check_descriptors,
        check_disks,
        check_home,
        check_token,
        check_certificates,
        check_otlp,
    )
    for check in parts:
        yield from _bounded(partial(check, settings), check.__name__)
    found = check_mesh(settings)
    if found is None:
        yield fine("controller", f"no mesh runs in {settings.home}")
        yield from check_free_ports(settings)
    else:
        yield from found


def _bounded(check: partial[Iterator[Finding]], name: str) -> Iterator[Finding]:
    try:
        yield from check()
    except OSError as error:
        # What cannot be looked at is a finding, and no reason to leave the others out.
        subject = name.removeprefix("check_")
        yield wrong(subject, f"it cannot be looked at: {error}", "run this as the mesh's user")


# What a mesh needs around it: who takes its spans; and what the environment says.

_CONNECT_TIMEOUT_S = 2.0
_OTLP_PORT = 4317


def check_environment() -> Iterator[Finding]:
    """Look for variables that nothing reads, or that have older names."""
    unknown = unknown_names()
    for line in unknown:
        yield notice("environment", line, "correct the name, or take the variable away")
    for line in older_names():
        yield notice("environment", line, "write the new name")
    if not unknown:
        yield ok("environment", "every PYSERVE_* variable is a setting")


def check_otlp(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether somebody takes the spans, if there are any."""
    tracing, endpoint = settings.tracing, settings.tracing.endpoint
    if not tracing.enabled or tracing.exporter is not None or not endpoint:
        return
    try:
        found = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        host, port = found.hostname or "", found.port or _OTLP_PORT
    except ValueError as error:
        remedy = "write it as http://HOST:4317"
        yield wrong("otlp", f"the endpoint of OTLP, {endpoint!r}, is none: {error}", remedy)
        return
    try:
        socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        yield wrong(
            "otlp",
            f"nobody takes spans at {endpoint}: {error}; they are lost",
            "start the collector, correct OTEL_EXPORTER_OTLP_ENDPOINT, or take it away",
        )
    else:
        yield ok("otlp", f"{endpoint} takes connections")


# What the machine has to give: descriptors, room on disks, ports.

# A mesh of a controller, an ingress and a few replicas has a few hundred. Arbitrary.
_DESCRIPTORS_MIN = 1024
# Beside connections: sockets of replicas, files. As much as an ingress keeps for the mesh.
_DESCRIPTORS_SPARE = 1024
_MIB = 1 << 20
# Below it the next log file or the next record of the state may not fit. Arbitrary, all three.
_ROOM_MIN_BYTES = 64 * _MIB
_ROOM_LOW_BYTES = 512 * _MIB
_FILES_MIN = 1000


def check_descriptors(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether processes may open as many files and sockets as they are asked to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.ingress.connections_max
    raising = "raise the hard limit (ulimit -Hn, LimitNOFILE= of a unit, --ulimit nofile=)"
    if hard == resource.RLIM_INFINITY or hard >= wanted + _DESCRIPTORS_SPARE:
        limit = "any number" if hard == resource.RLIM_INFINITY else str(hard)
        yield ok("descriptors", f"a process may open {limit} of files and sockets")
    elif hard < _DESCRIPTORS_MIN:
        text = f"a process may open {hard} files and sockets, which a mesh soon has"
        yield wrong("descriptors", text, raising)
    else:
        text = (
            f"a process may open {hard} files and sockets, fewer than the "
            f"{wanted + _DESCRIPTORS_SPARE} of {wanted} clients and the mesh itself"
        )
        yield notice("descriptors", text, f"{raising}, or set PYSERVE_INGRESS_MAX_CONNECTIONS")


def check_disks(
    settings: MeshSettings, look: Callable[[Path], os.statvfs_result] = os.statvfs
) -> Iterator[Finding]:
    """Look whether there is room where a mesh writes.

    Args:
        settings: Name the folders.
        look: Returns how full the file system of a folder is.
    """
    seen: set[int] = set()
    folders = (settings.home, settings.logs.directory, Path(tempfile.gettempdir()))
    for folder in filter(None, folders):
        place = next((each for each in (folder, *folder.parents) if each.exists()), None)
        if place is None or (device := place.stat().st_dev) in seen:
            continue
        seen.add(device)
        found = look(place)
        free = found.f_bavail * found.f_frsize
        text = f"{free // _MIB} MiB are free at {place}"
        if free < _ROOM_MIN_BYTES:
            yield wrong("disk", text, "make room: logs are cut off, and no state can be recorded")
        elif found.f_files and found.f_favail < _FILES_MIN:
            text = f"{found.f_favail} more files can be made at {place}"
            yield wrong("disk", text, "remove files: the file system is out of inodes")
        elif free < _ROOM_LOW_BYTES:
            yield notice("disk", text, "make room, or name another folder (PYSERVE_LOG_DIR)")
        else:
            yield ok("disk", text)


def check_free_ports(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether a mesh that is started could listen where it would."""
    taken = [address for address in default_addresses(settings) if _is_taken(address)]
    for address in taken:
        port = address.rpartition(":")[2]
        yield wrong(
            "ports",
            f"another program listens at {address}, where an ingress would",
            f"end it (`ss -ltnp 'sport = :{port}'` names it), or give another port with --address "
            f"or PYSERVE_INGRESS_PORT",
        )
    if not taken:
        yield ok("ports", f"an ingress can listen at {' and '.join(default_addresses(settings))}")
    metrics = settings.metrics.port
    if metrics and _is_taken(f"127.0.0.1:{metrics}"):
        yield notice(
            "ports",
            f"another program listens at port {metrics}, where metrics are shown",
            "end it, or set PYSERVE_METRICS_PORT; a mesh takes any free port instead",
        )


def _is_taken(address: str) -> bool:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if port == "0":
        return False
    try:
        with socket.socket(family, socket.SOCK_STREAM) as found:
            # As servers do, so that a connection in TIME_WAIT does not count as a user of the port.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, int(port)))
            found.listen(1)
    except OSError as error:
        # An address that this machine lacks (IPv6 is off, for example) is not taken.
        return error.errno == errno.EADDRINUSE
    return False


# The files of a mesh: its home, its token, its certificates.

_DAY_S = 86_400.0
# Who renews by hand has time then. Arbitrary.
_DAYS_LOW = 14
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def check_home(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether the folder in which meshes are found is this user's alone."""
    home = settings.home
    try:
        PrivateFolder(home, make=False).close()
    except FileNotFoundError:
        yield ok("home", f"{home} is not there yet; the first mesh makes it")
    except (MeshError, OSError) as error:
        remedy = f"set PYSERVE_HOME to a folder of your own, or remove {home}"
        yield wrong("home", str(error), remedy)
    else:
        mode = stat.S_IMODE(home.stat().st_mode)
        if mode & _OF_OTHERS:
            text = f"others may look into {home} (mode {mode:03o})"
            yield notice("home", text, f"chmod 700 {home}")
        else:
            yield ok("home", f"{home} is private")


def check_token(settings: MeshSettings) -> Iterator[Finding]:
    """Look whether the mesh token can be read, by this user only."""
    path = settings.token_file
    try:
        if path is None and (record := read_record(settings.home)) is not None:
            path = Path(record.token_file)
    except MeshError as error:
        yield wrong("token", str(error), "look at the finding on the home folder")
    if path is None:
        # Where no mesh runs there is none, and none is needed.
        return
    try:
        owner = path.stat().st_uid
        read_token(path, "PYSERVE_TOKEN_FILE" if settings.token_file is not None else "")
    except (MeshError, OSError) as error:
        remedy = f"copy the file from where the mesh was started, and chmod 600 {path}"
        yield wrong("token", str(error), remedy)
        return
    if owner not in (os.getuid(), 0):
        text = f"the mesh token in {path} belongs to user {owner}, who may exchange it"
        yield notice("token", text, f"chown {os.getuid()} {path}")
    else:
        yield ok("token", f"{path} is this user's alone")


def check_certificates(settings: MeshSettings, now: float | None = None) -> Iterator[Finding]:
    """Look whether certificates can be used, and for how long yet.

    Args:
        settings: Name the files.
        now: Unix time.
    """
    for name, files in (("ingress", settings.security.tls), ("mesh", settings.node.tls)):
        if files is None:
            continue
        try:
            check_server_files(files)
            paths = filter(None, (files.cert_file, files.ca_file))
            found = {path: lifetime_s(path.read_bytes()) for path in paths}
        except (OptionError, OSError, ValueError) as error:
            remedy = "give files in the PEM format that belong together; see guide/security.md"
            yield wrong("certificates", f"of the {name}: {error}", remedy)
            continue
        yield from _days_left(name, files, found, time.time() if now is None else now)
        yield from _key_modes(files)


def _days_left(
    name: str, files: TlsFiles, found: Mapping[Path, tuple[float, float]], now: float
) -> Iterator[Finding]:
    is_fine = True
    renewing = "renew it: put another certificate into the same file, which a mesh takes on"
    for path, (begins_at, ends_at) in found.items():
        is_fine = is_fine and begins_at <= now < ends_at - _DAYS_LOW * _DAY_S
        if begins_at > now:
            text = f"{path} is not valid before {date(begins_at)}"
            yield wrong("certificates", text, "look at the clock of this machine (timedatectl)")
        elif ends_at <= now:
            yield wrong("certificates", f"{path} was valid until {date(ends_at)}", renewing)
        elif ends_at < now + _DAYS_LOW * _DAY_S:
            days = int((ends_at - now) / _DAY_S)
            yield notice("certificates", f"{path} is valid for {days} days yet", renewing)
    if is_fine:
        days = int((min(ends_at for _, ends_at in found.values()) - now) / _DAY_S)
        yield ok("certificates", f"those of the {name} ({files.cert_file}) last for {days} days")


def _key_modes(files: TlsFiles) -> Iterator[Finding]:
    mode = stat.S_IMODE(files.key_file.stat().st_mode)
    if mode & stat.S_IRWXO:
        text = f"the key {files.key_file} can be read by everybody (mode {mode:03o})"
        yield wrong("certificates", text, f"chmod 600 {files.key_file}, and exchange the key")
