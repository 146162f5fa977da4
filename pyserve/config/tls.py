"""Where certificates, keys and access rules are: of the ingress, and between mesh processes.

Only paths and names are read here; who uses the files reads them, again and again, so that they
can be exchanged while a mesh runs. ``docs/guide/security.md`` explains every variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from pyserve.config import variables as read
from pyserve.config.http import HTTPOptions
from pyserve.config.validation import check_choice
from pyserve.errors import OptionError

_INGRESS = "PYSERVE_TLS"
_MESH = "PYSERVE_MESH_TLS"
_INGRESS_VARIABLES = tuple(f"{_INGRESS}_{name}" for name in ("CERT_FILE", "KEY_FILE", "CA_FILE"))
_CLIENT_CERT = "PYSERVE_TLS_CLIENT_CERT"
PLAIN_TCP = "PYSERVE_MESH_PLAIN_TCP"
# What to do instead of letting a network see the mesh token.
PLAIN_TCP_REMEDY = (
    f"set {_MESH}_CERT_FILE, {_MESH}_KEY_FILE and {_MESH}_CA_FILE for every process of the mesh "
    f"(docs/guide/security.md shows how to make these files), or {PLAIN_TCP}=1 where nobody else "
    f"can read what passes on that network"
)


@dataclass(frozen=True, kw_only=True)
class TlsOrigins:
    """What names the files of one side, for people: variables, or options; "": nothing does."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""

    @classmethod
    def of_variables(cls, prefix: str) -> TlsOrigins:
        """Return the variables that begin with ``prefix``."""
        return cls(
            cert_file=f"{prefix}_CERT_FILE",
            key_file=f"{prefix}_KEY_FILE",
            ca_file=f"{prefix}_CA_FILE",
        )


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """The PEM files of one side.

    Attributes:
        cert_file: the certificate, then those between it and the root.
        key_file: its private key, not encrypted.
        ca_file: the roots that peers' certificates must come from; None: peers show none.
        names: names in certificates, one of which a peer must have; (): any signed one will do.
        peers_required: a client must show a certificate; else one without it is let in as well.
        origins: what names the files.
    """

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    names: tuple[str, ...] = ()
    peers_required: bool = True
    origins: TlsOrigins = field(default=TlsOrigins(), compare=False)

    def origin_of(self, variable: str) -> str:
        """Return what the user wrote for the ingress's file that ``variable`` passes on."""
        own = dict(zip(_INGRESS_VARIABLES, astuple(self.origins), strict=True))
        return own.get(variable) or variable


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """What guards an ingress.

    Attributes:
        tls: of its listener; with a ``ca_file``, clients are asked for a certificate. None: plain.
        access_file: rules on who may call what; None: everybody may everything.
    """

    tls: TlsFiles | None = None
    access_file: Path | None = None

    @property
    def knows_callers(self) -> bool:
        """Whether not everybody who reaches the ingress may call what it shows."""
        tls = self.tls
        asks_for_certificates = tls is not None and tls.ca_file is not None and tls.peers_required
        return self.access_file is not None or asks_for_certificates


def read_security_settings(variables: Mapping[str, str]) -> SecuritySettings:
    """Read ``PYSERVE_TLS_*`` and ``PYSERVE_ACCESS_FILE``.

    Raises:
        OptionError: one of the variables is missing, or has no meaning without another.
    """
    names = f"{_INGRESS}_CLIENT_NAMES"
    tls = _read_files(variables, _INGRESS, names)
    if tls is not None and tls.names and tls.ca_file is None:
        raise OptionError(
            f"{names} is set without {_INGRESS}_CA_FILE; names are those of certificates, and "
            f"nothing says whose certificates count"
        )
    choice = variables.get(_CLIENT_CERT) or "required"
    check_choice(_CLIENT_CERT, choice, ("required", "optional"))
    if tls is not None:
        tls = replace(tls, peers_required=tls.ca_file is not None and choice == "required")
    return SecuritySettings(tls=tls, access_file=read.path(variables, "PYSERVE_ACCESS_FILE"))


def read_mesh_tls(variables: Mapping[str, str]) -> TlsFiles | None:
    """Read ``PYSERVE_MESH_TLS_*``; None: the processes of a mesh speak without TLS.

    Raises:
        OptionError: one of the variables is missing.
    """
    files = _read_files(variables, _MESH, f"{_MESH}_NAMES")
    if files is not None and files.ca_file is None:
        raise OptionError(
            f"{_MESH}_CERT_FILE is set without {_MESH}_CA_FILE; between mesh processes both sides "
            f"show a certificate, and nothing says whose certificates count"
        )
    return files


def read_plain_tcp(variables: Mapping[str, str]) -> bool:
    """Read whether the mesh token may be shown over TCP without TLS to other machines."""
    return read.switch(variables, PLAIN_TCP)


def files_of(http: HTTPOptions) -> TlsFiles | None:
    """Return the files that options name; None: none, the ingress speaks plainly."""
    if http.ssl_certfile is None or http.ssl_keyfile is None:
        return None
    return TlsFiles(
        cert_file=Path(http.ssl_certfile),
        key_file=Path(http.ssl_keyfile),
        ca_file=None if http.ssl_ca_certs is None else Path(http.ssl_ca_certs),
        peers_required=http.ssl_ca_certs is not None,
        origins=TlsOrigins(
            cert_file="http_options.ssl_certfile",
            key_file="http_options.ssl_keyfile",
            ca_file="http_options.ssl_ca_certs",
        ),
    )


def environment_of_tls(http: HTTPOptions) -> dict[str, str]:
    """Return the variables that tell a mesh's process what options say about TLS."""
    return _environment(http.ssl_certfile, http.ssl_keyfile, http.ssl_ca_certs)


def environment_of_files(files: TlsFiles) -> dict[str, str]:
    """Return the variables that tell a mesh's process the files of its ingress."""
    return _environment(files.cert_file, files.key_file, files.ca_file)


def _environment(*paths: str | Path | None) -> dict[str, str]:
    # The mesh's process may have another working directory.
    return {
        name: str(Path(path).absolute())
        for name, path in zip(_INGRESS_VARIABLES, paths, strict=True)
        if path is not None
    }


def _read_files(variables: Mapping[str, str], prefix: str, names: str) -> TlsFiles | None:
    found = {
        name: read.path(variables, f"{prefix}_{name.upper()}")
        for name in ("cert_file", "key_file", "ca_file")
    }
    cert_file, key_file = found["cert_file"], found["key_file"]
    if cert_file is not None and key_file is not None:
        return TlsFiles(
            cert_file=cert_file,
            key_file=key_file,
            ca_file=found["ca_file"],
            names=read.words(variables, names),
            origins=TlsOrigins.of_variables(prefix),
        )
    given = [f"{prefix}_{name.upper()}" for name, path in found.items() if path is not None]
    given += [names] if read.words(variables, names) else []
    if given:
        raise OptionError(
            f"{' and '.join(given)} set, but TLS needs both {prefix}_CERT_FILE and "
            f"{prefix}_KEY_FILE"
        )
    return None
