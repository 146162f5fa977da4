"""The protection of the ingress: its certificates and access rules, from files that it watches.

A new file that cannot be used is refused with an error in the log, and the old one stays in force:
a typing error must neither open nor close a mesh. Calls that the rules refuse are logged too, never
with a token.

The access file, which is YAML, says which callers may make which calls. It is read strictly: a word
that means nothing is refused, with the file, the place in it and what is allowed there.
``docs/guide/security.md`` has the format.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from pyserve.config.tls import SecuritySettings, TlsFiles
from pyserve.config.validation import check_choice, check_flag, check_mapping, check_text, refuse
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


# Methods that say nothing about the applications' data, by the word that leaves them open. A
# probe asks about what it knows, so that health lists no names.
OPEN_PATHS: Mapping[str, tuple[str, ...]] = {
    "health": (
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/ray.serve.RayServeAPIService/Healthz",
        "/-/healthz",
    ),
    "reflection": (
        "/grpc.reflection.v1.ServerReflection/*",
        "/grpc.reflection.v1alpha.ServerReflection/*",
    ),
    "routes": ("/-/routes", "/ray.serve.RayServeAPIService/ListApplications"),
}
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})\Z")
_FIELDS = ("name", "paths", "applications", "identities", "tokens", "anonymous")
# Shorter secrets can be guessed. Arbitrary; `openssl rand -hex 16` gives twice as many.
_TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """One rule; what it asks for is needed together.

    Attributes:
        name: for logs.
        paths: ``/pkg.Service/Method``, ``/pkg.Service/*``, ``/prefix/**``.
        applications: whose calls it is about; None: those of every application, and of none.
        identities: names in client certificates; None: no certificate needed.
        token_hashes: SHA-256 of bearer tokens; None: no token needed.
        anonymous: everybody.
    """

    name: str
    paths: tuple[str, ...]
    applications: tuple[str, ...] | None = None
    identities: tuple[str, ...] | None = None
    token_hashes: tuple[bytes, ...] | None = None
    anonymous: bool = False


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """All rules of an ingress.

    Attributes:
        rules: a call that one of them allows is made.
        default_allow: calls that no rule is about are made too.
        files: what was read: the access file, and those with tokens.
    """

    rules: tuple[RuleSettings, ...]
    default_allow: bool
    files: tuple[Path, ...]


def read_access_file(file: Path) -> AccessSettings:
    """Read the rules in ``file``, and the tokens in files that it names.

    Raises:
        OptionError: a file cannot be read, or says something that is not allowed.
    """
    from pyserve.config import texts  # Every process imports this module, and few have such a file.

    reader, text = _Reader(file), _read_text(file)
    try:
        content, _ = texts.read(text)
    except texts.TextError as error:
        place = f"{file}:{error.mark.line + 1}" if error.mark is not None else str(file)
        raise OptionError(f"{place}: {error}") from None
    top = check_mapping(str(file), {} if content is None else content)
    reader.check_fields("", top, ("default", "open", "rules"))
    default = check_choice(f"{file}: default", top.get("default", "deny"), ("deny", "allow"))
    rules = [
        RuleSettings(name=f"open {word}", paths=OPEN_PATHS[word], anonymous=True)
        for word in reader.texts("open", top.get("open", []))
        if check_choice(f"{file}: open", word, tuple(OPEN_PATHS))
    ]
    listed = top.get("rules", [])
    if not isinstance(listed, list):
        raise refuse(f"{file}: rules", listed, "a list of rules")
    rules += [reader.rule(f"rules[{index}]", rule) for index, rule in enumerate(listed)]
    return AccessSettings(
        rules=tuple(rules), default_allow=default == "allow", files=tuple(reader.files)
    )


class _Reader:
    """Reads the parts of one file, and remembers which other files it names."""

    def __init__(self, file: Path) -> None:
        self.files = [file]
        self._file = file

    def rule(self, place: str, value: object) -> RuleSettings:
        fields = check_mapping(f"{self._file}: {place}", value)
        self.check_fields(place, fields, _FIELDS)
        applications = fields.get("applications")
        identities = fields.get("identities")
        tokens = fields.get("tokens")
        if not (paths := self.texts(f"{place}.paths", fields.get("paths", []))):
            raise refuse(f"{self._file}: {place}.paths", paths, "a list of paths, not empty")
        return RuleSettings(
            name=check_text(f"{self._file}: {place}.name", fields.get("name", place)),
            paths=paths,
            applications=None
            if applications is None
            else self.texts(f"{place}.applications", applications),
            identities=None
            if identities is None
            else self.texts(f"{place}.identities", identities),
            token_hashes=None if tokens is None else self._tokens(f"{place}.tokens", tokens),
            anonymous=check_flag(
                f"{self._file}: {place}.anonymous", fields.get("anonymous", False)
            ),
        )

    def texts(self, place: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise refuse(f"{self._file}: {place}", value, "a list of texts")
        return tuple(
            check_text(f"{self._file}: {place}[{index}]", text) for index, text in enumerate(value)
        )

    def check_fields(
        self, place: str, fields: Mapping[str, object], allowed: Sequence[str]
    ) -> None:
        for name in fields:
            if name not in allowed:
                where = f"{place}.{name}" if place else name
                raise OptionError(
                    f"{self._file}: {where} is not allowed; allowed: {', '.join(allowed)}"
                )

    def _tokens(self, place: str, value: object) -> tuple[bytes, ...]:
        if not isinstance(value, list):
            raise OptionError(f"{self._file}: {place} is not allowed; allowed: a list of tokens")
        return tuple(self._token(f"{place}[{index}]", item) for index, item in enumerate(value))

    def _token(self, place: str, value: object) -> bytes:
        """Return the hash. Refusals do not repeat the value, which may be the secret itself."""
        if isinstance(value, str) and (match := _HASH.match(value)):
            return bytes.fromhex(match[1])
        if isinstance(value, dict) and list(value) == ["token_file"]:
            name = check_text(f"{self._file}: {place}.token_file", value["token_file"])
            # Beside the access file, wherever the process was started.
            path = self._file.parent / name
            self.files.append(path)
            token = _read_text(path).strip()
            if len(token) >= _TOKEN_LENGTH_MIN and not re.search(r"\s", token):
                return hashlib.sha256(token.encode()).digest()
            raise OptionError(
                f"{path}: one token of at least {_TOKEN_LENGTH_MIN} characters is allowed here, "
                f"on one line, such as the output of `openssl rand -hex 32`"
            )
        raise OptionError(
            f"{self._file}: {place} is not allowed; allowed: sha256: and 64 hexadecimal digits "
            f'(`printf %s "$TOKEN" | sha256sum`), or token_file: and the name of a file'
        )


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(
            f"{file} cannot be read: {error.strerror}; give the path of a file that this user may "
            f"read"
        ) from None
    except ValueError as error:  # No UTF-8, or a name with a null byte.
        raise OptionError(f"{file} cannot be read: {error}") from None
