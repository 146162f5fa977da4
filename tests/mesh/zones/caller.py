"""``python -m tests.mesh.zones.caller ZONE CALLS``: calls the ingress of its host, one at a time.

Ends with 0 when every call was answered rightly.
"""

import sys

import grpc

from benchmarks.zones.mesh import INGRESS_PORT
from services.echo import echo_pb2, echo_pb2_grpc

_TIMEOUT_S = 20.0


def main(zone: str, calls: str) -> None:
    request = echo_pb2.EchoRequest(payload=zone.encode())
    with grpc.insecure_channel(f"127.0.0.1:{INGRESS_PORT}") as channel:
        stub = echo_pb2_grpc.EchoStub(channel)
        for _ in range(int(calls)):
            assert request.payload == stub.Echo(request, timeout=_TIMEOUT_S).payload


if __name__ == "__main__":
    main(*sys.argv[1:])
