"""The protection of the ingress: its certificates and access rules, from files that it watches.

A new file that cannot be used is refused with an error in the log, and the old one stays in force:
a typing error must neither open nor close a mesh. Calls that the rules refuse are logged too, never
with a token.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import grpc

from pyserve.aio.certificates import (
    LOOK_INTERVAL_S,
    Followed,
    add_lifetime,
    paths_of,
    read_pem,
    unusable,
    warn_of_lifetime,
)
from pyserve.bridge import rust
from pyserve.config.access import AccessSettings, read_access_file
from pyserve.config.tls import SecuritySettings, TlsFiles
from pyserve.errors import OptionError
from pyserve.observe.metrics import Scrape

_LOGGER = logging.getLogger(__name__)
# A log of its own for refused calls, for people who keep only these.
_AUDIT = logging.getLogger("pyserve.audit")
# Lines in the log after each look; the rest is counted in one more. Arbitrary.
_REFUSALS_LOGGED_MAX = 10
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class IngressSecurity:
    """The TLS settings and the access rules of one listener.

    Attributes:
        tls: for the listener; None: it speaks plainly.
        access: for the listener; None: everybody may everything.
        knows_callers: without a certificate or a rule nobody comes in.

    Raises:
        OptionError: a file cannot be read or used.
    """

    def __init__(self, settings: SecuritySettings) -> None:
        self.tls: rust.ServerTls | None = None
        self.access: rust.AccessPolicy | None = None
        self.knows_callers = settings.access_file is not None or (
            settings.tls is not None and settings.tls.peers_required
        )
        self._ends_s: float | None = None
        self._followed: list[Followed] = []
        self._unrecorded = 0
        if settings.tls is not None:
            self._use_certificates(settings.tls)
        if settings.access_file is not None:
            self._use_rules(settings.access_file)

    async def follow(self) -> None:
        """Follow the files and write down refusals, until cancelled."""
        if not self._followed:
            return
        try:
            while True:
                await asyncio.sleep(LOOK_INTERVAL_S)
                self.look()
        finally:
            self._log_refusals()

    def add_metrics(self, scrape: Scrape) -> None:
        """Add when the certificate ends that is used now; from any thread."""
        if self._ends_s is not None:
            add_lifetime(scrape, "ingress", self._ends_s)

    def look(self) -> None:
        """Use what has changed, and log what was refused since the last look."""
        for followed in self._followed:
            followed.look()
        self._log_refusals()

    def _use_certificates(self, files: TlsFiles) -> None:
        pem = read_pem(files)
        try:
            tls = rust.ServerTls(
                [pem.pair],
                pem.roots,
                files.peers_required,
                http1=True,
                allowed_names=files.names or None,
            )
        except ValueError as error:
            raise unusable(error, files) from None
        self._ends_s = warn_of_lifetime("the ingress", files, pem)

        def reload() -> list[Path]:
            new = read_pem(files)
            tls.reload([new.pair], new.roots)
            self._ends_s = warn_of_lifetime("the ingress", files, new)
            return paths_of(files)

        self.tls = tls
        self._followed.append(Followed("certificates of the ingress", reload, paths_of(files)))

    def _use_rules(self, file: Path) -> None:
        try:
            settings = read_access_file(file)
        except OptionError as error:
            # A file with a token is named by the one with the rules.
            which = "" if str(file) in str(error) else f"={file}"
            raise OptionError(
                f"{error} (PYSERVE_ACCESS_FILE{which} has the access rules; without the variable "
                f"everybody may call everything)"
            ) from None
        access = self.access = _policy(file, settings)

        def reload() -> tuple[Path, ...]:
            new = read_access_file(file)
            access.replace(_rules(file, new), default_allow=new.default_allow)
            return new.files

        self._followed.append(Followed("access rules", reload, settings.files))

    def _log_refusals(self) -> None:
        if self.access is None:
            return
        refusals = self.access.take_refusals()
        for code, path, peer, names, had_token in refusals[:_REFUSALS_LOGGED_MAX]:
            _AUDIT.warning(
                "refused %s to %r: %s (certificate: %s, bearer token: %s)",
                path.encode("unicode_escape").decode(),
                peer,
                _CODES[code],
                ", ".join(map(repr, names)) or "none",
                "given" if had_token else "none",
            )
        unrecorded = self.access.stats()["unrecorded"]
        more = len(refusals[_REFUSALS_LOGGED_MAX:]) + unrecorded - self._unrecorded
        self._unrecorded = unrecorded
        if more:
            _AUDIT.warning("refused %d more calls since the last look", more)


def _policy(file: Path, settings: AccessSettings) -> rust.AccessPolicy:
    try:
        return rust.AccessPolicy(_rules(file, settings), default_allow=settings.default_allow)
    except ValueError as error:
        raise OptionError(f"{file}: {error}") from None


def _rules(file: Path, settings: AccessSettings) -> list[rust.AccessRule]:
    rules = []
    for rule in settings.rules:
        try:
            rules.append(
                rust.AccessRule(
                    name=rule.name,
                    paths=rule.paths,
                    applications=rule.applications,
                    identities=rule.identities,
                    token_hashes=rule.token_hashes,
                    anonymous=rule.anonymous,
                )
            )
        except ValueError as error:
            raise OptionError(f"{file}: rule {rule.name!r}: {error}") from None
    return rules
