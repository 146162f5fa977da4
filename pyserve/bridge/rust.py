"""What the layers above use of the native extension: its own objects, by their names.

The rest of it (forks, the drain of the ring, limits of the process) is the bridge's own business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyserve._router import (
    CANCEL,
    CANCEL_CLIENT,
    CANCEL_DEADLINE,
    CANCEL_SHUTDOWN,
    CHOSEN,
    DEFLATE,
    DONE,
    GZIP,
    HALF_CLOSE,
    IDENTITY,
    INITIAL_METADATA,
    MESSAGE,
    WRITABLE,
    AccessPolicy,
    AccessRule,
    CallOptions,
    CallRecord,
    CallRecords,
    Channel,
    ClientCall,
    ClientTls,
    DeploymentRoute,
    Endpoint,
    HttpHead,
    Ingress,
    IngressLimits,
    Ranker,
    Reservation,
    RoutingTable,
    ServedSpans,
    Server,
    ServerCall,
    ServerTls,
    certificate_lifetime_s,
)

if TYPE_CHECKING:
    # In the stub only: names of types.
    from pyserve._router import HttpFields, HttpHeaders, Metadata, Payload  # noqa: TC004  # no use

__all__ = [
    "CANCEL",
    "CANCEL_CLIENT",
    "CANCEL_DEADLINE",
    "CANCEL_SHUTDOWN",
    "CHOSEN",
    "DEFLATE",
    "DONE",
    "GZIP",
    "HALF_CLOSE",
    "IDENTITY",
    "INITIAL_METADATA",
    "MESSAGE",
    "WRITABLE",
    "AccessPolicy",
    "AccessRule",
    "CallOptions",
    "CallRecord",
    "CallRecords",
    "Channel",
    "ClientCall",
    "ClientTls",
    "DeploymentRoute",
    "Endpoint",
    "HttpFields",
    "HttpHead",
    "HttpHeaders",
    "Ingress",
    "IngressLimits",
    "Metadata",
    "Payload",
    "Ranker",
    "Reservation",
    "RoutingTable",
    "ServedSpans",
    "Server",
    "ServerCall",
    "ServerTls",
    "certificate_lifetime_s",
]
