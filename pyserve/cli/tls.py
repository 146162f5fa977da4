"""TLS of ``pyserve call``: the files that options name, and what a failed handshake means."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import click
import grpc

from pyserve.aio.certificates import check_client_files, read_file
from pyserve.config.tls import TlsOrigins
from pyserve.driver.channels import own_channel

# A handshake on a network that works; this one only looks for a better text.
_LOOK_TIMEOUT_S = 3.0
# The preface of HTTP/2 and empty settings (RFC 9113, section 3.4).
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
# Of OpenSSL's x509_vfy.h, which the standard library has no names for.
_NOT_YET_GOOD, _EXPIRED = 9, 10
_UNKNOWN_ROOTS = (2, 18, 19, 20, 21)
_OTHER_NAMES = (62, 64)
_ORIGINS = TlsOrigins(cert_file="--cert", key_file="--key", ca_file="--ca")


@dataclass(frozen=True, kw_only=True)
class ClientTls:
    """The certificates that a client trusts, and its own.

    Attributes:
        ca: Roots of the server's certificate; ``None``: those of the system.
        cert: Certificate of the client, and its issuers; ``None``: it shows none.
        key: The private key of ``cert``.
        server_name: A name in the server's certificate; ``None``: what is dialled.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    @classmethod
    def of(
        cls,
        wanted: bool,
        *,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        server_name: str | None,
    ) -> ClientTls | None:
        """Read options; ``None``: they ask for no TLS.

        Raises:
            click.UsageError: One of ``--cert`` and ``--key`` is missing.
            OptionError: A file cannot be read or used.
        """
        if (cert is None) != (key is None):
            given, missing = ("--cert", "--key") if key is None else ("--key", "--cert")
            raise click.UsageError(f"{given} is given without {missing}; they belong together")
        if not (wanted or ca or cert or server_name):
            return None
        check_client_files(ca, cert, key, _ORIGINS)
        return cls(ca=ca, cert=cert, key=key, server_name=server_name)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return what a secure channel of grpc takes."""
        return grpc.ssl_channel_credentials(
            *(
                None if path is None else read_file("the file", path)
                for path in (self.ca, self.key, self.cert)
            )
        )

    def advice(self, target: str) -> str:
        """Shake hands once more, and return what is to be done where that fails."""
        host, _, port = target.rpartition(":")
        host = host.strip("[]")
        context = ssl.create_default_context(cafile=self.ca)
        context.set_alpn_protocols(["h2"])
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        try:
            with (
                socket.create_connection((host, int(port)), _LOOK_TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname=self.server_name or host) as connection,
            ):
                connection.sendall(_HELLO)
                # Since TLS 1.3 a server looks at the client's certificate after the handshake, and
                # not every one says why it closes; a server of HTTP/2 that stays answers at once.
                has_answered = bool(connection.recv(1))
        except ssl.SSLCertVerificationError as error:
            return self._of_certificate(error)
        except ssl.SSLError as error:
            return self._of_refusal(error.reason)
        except ConnectionResetError as error:
            return self._of_refusal(error.strerror)
        except (OSError, ValueError) as error:
            return f"{target} cannot be reached: {error}"
        if not has_answered:
            return self._of_refusal("it closes the connection")
        return "a TLS connection can be made, so look at the server's log"

    def _of_certificate(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in (_EXPIRED, _NOT_YET_GOOD):
            return f"the server's certificate is not good today ({error.verify_message})"
        if error.verify_code in _OTHER_NAMES:
            return (
                f"the server's certificate is for another name ({error.verify_message}); give one "
                f"that it carries with --server-name"
            )
        if error.verify_code in _UNKNOWN_ROOTS:
            known = "the system knows" if self.ca is None else f"is in {self.ca}"
            return (
                f"the server's certificate comes from no root that {known}; give the root's file "
                f"with --ca"
            )
        return f"the server's certificate is refused: {error.verify_message}"

    def _of_refusal(self, reason: str | None) -> str:
        if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"):
            return "the server does not speak TLS at this address; leave --tls out"
        if self.cert is None:
            return (
                f"the server ends the handshake ({reason}); if it wants clients to show a "
                f"certificate, give one with --cert and --key"
            )
        return f"the server does not take the certificate {self.cert} ({reason})"


def open_channel(target: str, tls: ClientTls | None) -> grpc.Channel:
    """Return a channel to ``host:port``, which uses no proxy."""
    options: list[tuple[str, str | int]] = [
        ("grpc.enable_http_proxy", 0),
        # The user has asked for the answer, however long it is.
        ("grpc.max_receive_message_length", -1),
    ]
    if tls is None:
        return own_channel(target, options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return own_channel(target, options, tls.credentials())
