"""The files of a mesh: its home, its token, its certificates."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyserve.aio.certificates import check_server_files, date, lifetime_s
from pyserve.config import MeshSettings
from pyserve.config.tls import TlsFiles
from pyserve.control.discovery import read_record
from pyserve.control.tokens import read_token
from pyserve.driver.doctor.findings import Finding, notice, ok, wrong
from pyserve.errors import MeshError, OptionError
from pyserve.folders import PrivateFolder

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
