"""What the machine has to give: descriptors, room on disks, ports."""

from __future__ import annotations

import errno
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pyserve.config import MeshSettings, default_addresses
from pyserve.driver.doctor.findings import Finding, notice, ok, wrong

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
