"""Roots, issuers and leaves for tests, and the files in which processes find them."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_HOUR = datetime.timedelta(hours=1)
_PEM = serialization.Encoding.PEM
_COUNT = itertools.count(1)
# Since Python 3.13 clients insist on RFC 5280: on this, and on the identifiers of keys.
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Leaf:
    """A private key and a chain from its certificate up to below the root, PEM."""

    key: bytes
    chain: bytes
    serial: int


class Authority:
    """Signs certificates: a root without ``parent``, an issuer below it with one."""

    def __init__(self, parent: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"authority {next(_COUNT)}")
        signer = parent or self
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, signer, self._key, _HOUR)
        builder = builder.add_extension(constraints, critical=True)
        builder = builder.add_extension(_SIGNS, critical=True)
        self.certificate = builder.sign(signer._key, hashes.SHA256()).public_bytes(_PEM)
        self._chain: bytes = b"" if parent is None else self.certificate + parent._chain

    def issue(
        self, *names: str, common_name: str | None = "leaf", lifetime: datetime.timedelta = _HOUR
    ) -> Leaf:
        """Sign a certificate for both sides of a connection.

        Args:
            names: Alternative names: URIs, addresses, or DNS names.
            common_name: What the subject says; ``None``: it says nothing.
            lifetime: From now on; a negative one has ended.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        subject = x509.Name([]) if common_name is None else _named(common_name)
        builder = _builder(subject, self, key, lifetime)
        if names:
            alternatives = x509.SubjectAlternativeName(map(_alternative, names))
            builder = builder.add_extension(alternatives, critical=common_name is None)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        ).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = certificate.public_bytes(_PEM) + self._chain
        return Leaf(private, chain, certificate.serial_number)


@dataclass(frozen=True)
class Files:
    """Where one side finds its certificates, laid out as Kubernetes mounts a secret.

    ``folder/..data`` is a symbolic link that changes in one step; the files lead through it.
    """

    folder: Path

    @property
    def cert_file(self) -> Path:
        """The certificate and those between it and the root."""
        return self.folder / "..data" / "tls.crt"

    @property
    def key_file(self) -> Path:
        """The private key."""
        return self.folder / "..data" / "tls.key"

    @property
    def ca_file(self) -> Path:
        """The roots of peers."""
        return self.folder / "..data" / "ca.crt"

    def write(self, leaf: Leaf, *roots: Authority) -> None:
        """Exchange all three at once."""
        version = self.folder / f"..{next(_COUNT)}"
        version.mkdir(parents=True)
        (version / "tls.crt").write_bytes(leaf.chain)
        (version / "tls.key").write_bytes(leaf.key)
        (version / "ca.crt").write_bytes(b"".join(root.certificate for root in roots))
        fresh = self.folder / "..fresh"
        fresh.symlink_to(version.name)
        fresh.replace(self.folder / "..data")

    def environment(self, prefix: str) -> dict[str, str]:
        """Return the variables that name the files."""
        return {
            f"{prefix}_CERT_FILE": str(self.cert_file),
            f"{prefix}_KEY_FILE": str(self.key_file),
            f"{prefix}_CA_FILE": str(self.ca_file),
        }


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    signer: Authority,
    key: ec.EllipticCurvePrivateKey,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer._name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _HOUR)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer._key.public_key()),
            critical=False,
        )
    )
