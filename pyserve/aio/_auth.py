"""What the transport knows of a peer, in the words of grpc's auth context."""

from __future__ import annotations

AuthContext = dict[str, list[bytes]]


def auth_context_of(known: AuthContext) -> AuthContext:
    """Return the auth context of a connection.

    Left out is what the native side does not tell: version, group and server name of the
    handshake, the whole subject of a certificate, and its names by their kind.

    Args:
        known: What the native side knows: nothing without TLS, and the names and the PEM of a
            certificate when the peer has shown one.
    """
    if "transport_security_type" not in known:
        return {
            "transport_security_type": [b"insecure"],
            "security_level": [b"TSI_SECURITY_NONE"],
        }
    context = {key: values for key, values in known.items() if values}
    context["security_level"] = [b"TSI_PRIVACY_AND_INTEGRITY"]
    if "x509_pem_cert" in context:
        context.setdefault("x509_common_name", [b""])
        # Who asks for certificates resumes no session; of others it is not told.
        context["ssl_session_reused"] = [b"false"]
    return context
