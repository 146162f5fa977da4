"""Certificates in files, followed while they are used: for both sides of a mesh's connections.

A file that has changed is noticed by looking: Kubernetes exchanges whole folders by symbolic
links, other tools rename files into place or rewrite them, network file systems report nothing;
what all of them change is what ``stat`` says. One look a second is a handful of system calls, and
finds a new certificate well within the five seconds in which it must be used.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pyserve.aio._channel import Channel, live_channel
from pyserve.aio._credentials import ChannelTls, LiveServerCredentials
from pyserve.bridge import rust
from pyserve.config.tls import TlsFiles, TlsOrigins
from pyserve.errors import OptionError
from pyserve.observe.metrics import Scrape

_LOGGER = logging.getLogger(__name__)
# See above.
LOOK_INTERVAL_S = 1.0
# An exchange takes microseconds to milliseconds; files that still change after that many are not
# being exchanged but broken, and the handshake says so.
_READS_MAX = 5

_Signature = tuple[tuple[int, int, int] | None, ...]


class Pem(NamedTuple):
    """The content of one side's files."""

    pair: tuple[bytes, bytes]
    roots: bytes | None


def read_pem(files: TlsFiles) -> Pem:
    """Read the files as they are now.

    They are read again when they changed meanwhile: a key and the certificate of another one are
    of no use together, and whoever exchanges whole folders cannot stop a reader between two files.

    Raises:
        OptionError: one of them cannot be read.
    """
    paths = paths_of(files)
    for _ in range(_READS_MAX):
        seen = _signature(paths)
        pem = _read_once(files)
        if seen == _signature(paths):
            break
    return pem


def _read_once(files: TlsFiles) -> Pem:
    origins = files.origins
    return Pem(
        (
            read_file("the private key", files.key_file, origins.key_file),
            read_file("the certificate", files.cert_file, origins.cert_file),
        ),
        None
        if files.ca_file is None
        else read_file("the file of root certificates", files.ca_file, origins.ca_file),
    )


def lifetime_s(chain: bytes) -> tuple[float, float]:
    """Return from when to when all certificates of a PEM are good, Unix time.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    return rust.certificate_lifetime_s(chain)


def warn_of_lifetime(what: str, files: TlsFiles, pem: Pem) -> float:
    """Log it if a certificate is not good now: peers will refuse it, and do not tell this side.

    It is used all the same: clocks differ, and who looks at a certificate is the peer.

    Args:
        what: whose it is, for the log.
        files: where it is.
        pem: what has been read from there, and can be used.

    Returns:
        When it ends, Unix time.
    """
    begins_s, ends_s = lifetime_s(pem.pair[1])
    now_s = time.time()
    if begins_s <= now_s <= ends_s:
        return ends_s
    fault = f"ended at {date(ends_s)}" if ends_s < now_s else f"begins at {date(begins_s)}"
    _LOGGER.error(
        "the certificate of %s in %s %s, so peers refuse it; put another one in its place, it is "
        "used without a restart",
        what,
        files.cert_file,
        fault,
    )
    return ends_s


def add_lifetime(scrape: Scrape, certificate: str, ends_s: float) -> None:
    """Add when a certificate that this process shows ends.

    Args:
        scrape: takes it.
        certificate: whom it is for, ``ingress`` or ``mesh``.
        ends_s: as ``warn_of_lifetime`` returns it.
    """
    name = "pyserve_certificate_end_time_seconds"
    scrape.add(name, ends_s, certificate=certificate, pid=str(os.getpid()))


def check_client_files(
    ca: Path | None, cert: Path | None, key: Path | None, origins: TlsOrigins
) -> None:
    """Look whether a client could use the files; ``None``: it does without.

    Raises:
        OptionError: one of them cannot be read or used.
    """
    roots = None if ca is None else read_file("the file of root certificates", ca, origins.ca_file)
    own_key = None if key is None else read_file("the private key", key, origins.key_file)
    chain = None if cert is None else read_file("the certificate", cert, origins.cert_file)
    try:
        rust.ClientTls(roots, own_key, chain, None)
    except ValueError as error:
        raise _unusable(error, cert, key, ca, origins) from None


def check_server_files(files: TlsFiles) -> None:
    """Look whether a server could use the files, where what names them is still known.

    Raises:
        OptionError: one of them cannot be read or used.
    """
    pem = read_pem(files)
    try:
        rust.ServerTls(
            [pem.pair], pem.roots, files.peers_required, allowed_names=files.names or None
        )
    except ValueError as error:
        raise unusable(error, files) from None


def unusable(error: ValueError, files: TlsFiles) -> OptionError:
    """Return the error about files that can be read but not used; the caller raises it."""
    return _unusable(error, files.cert_file, files.key_file, files.ca_file, files.origins)


def _unusable(
    error: ValueError, cert: Path | None, key: Path | None, ca: Path | None, origins: TlsOrigins
) -> OptionError:
    places = {
        "certificate chain": (origins.cert_file, cert),
        "private key": (origins.key_file, key),
        "root certificates": (origins.ca_file, ca),
    }
    named = ", ".join(
        f"{what}: {path}" + (f" in {origin}" if origin else "")
        for what, (origin, path) in places.items()
        if path is not None
    )
    return OptionError(f"{error} ({named}); give PEM files that belong together")


def paths_of(files: TlsFiles) -> list[Path]:
    """Return the files, the optional one left out."""
    return [path for path in (files.cert_file, files.key_file, files.ca_file) if path is not None]


class Followed:
    """Files that are read again when they have changed.

    Args:
        what: a description of the files, for the log.
        load: reads and uses them, and returns the files to watch. It raises ``OptionError`` or
            ``ValueError`` if they cannot be used, and then leaves everything unchanged.
    """

    def __init__(
        self, what: str, load: Callable[[], Sequence[Path]], paths: Sequence[Path]
    ) -> None:
        self._what = what
        self._load = load
        self._paths = tuple(paths)
        self._seen = _signature(self._paths)

    def look(self) -> None:
        """Use the files if they have changed; what cannot be used is logged, once."""
        seen = _signature(self._paths)
        if seen == self._seen:
            return
        # Before they are read: what changes meanwhile is found by the next look.
        self._seen = seen
        try:
            paths = tuple(self._load())
        except (OptionError, ValueError) as error:
            _LOGGER.error("the new %s cannot be used, the old stay: %s", self._what, error)
            return
        except Exception:
            # ``follow`` must survive any bad file, since nothing would restart it.
            _LOGGER.exception("the new %s cannot be used, the old stay", self._what)
            return
        if paths != self._paths:
            self._paths, self._seen = paths, _signature(paths)
        _LOGGER.info("new %s from %s", self._what, ", ".join(map(str, self._paths)))

    async def follow(self) -> None:
        """Look once a second until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            self.look()


class MeshTls:
    """Certificates for connections between processes of one mesh, as server and as client.

    Args:
        files: where they are; with roots, since both sides show a certificate.

    Raises:
        OptionError: they cannot be read or used.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        names = files.names or None
        pem = read_pem(files)
        try:
            self._server = rust.ServerTls([pem.pair], pem.roots, True, allowed_names=names)
            self.client = rust.ClientTls(pem.roots, *pem.pair, None, allowed_names=names)
        except ValueError as error:
            raise unusable(error, files) from None
        self._ends_s = warn_of_lifetime("this process of the mesh", files, pem)
        self._followed = Followed("certificates of the mesh", self._load, paths_of(files))

    @property
    def server_credentials(self) -> LiveServerCredentials:
        """What ``Server.add_secure_port`` takes."""
        return LiveServerCredentials(self._server)

    def channel(self, target: str, options: Sequence[tuple[str, int]]) -> Channel:
        """Make a channel to ``host:port`` of another process of the mesh."""
        return live_channel(target, ChannelTls(None, None, None, (), self.client), options)

    def add_metrics(self, scrape: Scrape) -> None:
        """Add when the certificate ends that is used now; from any thread."""
        add_lifetime(scrape, "mesh", self._ends_s)

    async def follow(self) -> None:
        """Use new files within a second or two, until cancelled; open connections go on."""
        await self._followed.follow()

    def _load(self) -> list[Path]:
        pem = read_pem(self._files)
        self._server.reload([pem.pair], pem.roots)
        # The same files were good for the server.
        self.client.reload(pem.roots, *pem.pair)
        self._ends_s = warn_of_lifetime("this process of the mesh", self._files, pem)
        return paths_of(self._files)


def mesh_tls(files: TlsFiles | None) -> MeshTls | None:
    """Return ``MeshTls``, or None where the mesh speaks plainly.

    Raises:
        OptionError: the files cannot be read or used.
    """
    return None if files is None else MeshTls(files)


def date(seconds: float) -> str:
    """Return a Unix time as people write it."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def _signature(paths: Sequence[Path]) -> _Signature:
    return tuple(map(_signature_of, paths))


def _signature_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_file(what: str, path: Path, origin: str = "") -> bytes:
    """Return the content of a file.

    Args:
        what: what it holds.
        path: where it is.
        origin: the variable or option that names it; "": none does.

    Raises:
        OptionError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        named = f" ({origin})" if origin else ""
        raise OptionError(
            f"{what} {path}{named} cannot be read: {error.strerror}; give the path of a PEM file "
            f"that this user may read"
        ) from None
