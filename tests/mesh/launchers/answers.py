"""What digits answers, wherever its replicas are."""

from __future__ import annotations

from pathlib import Path

import grpc

from services.digits import digits_pb2, digits_pb2_grpc

SEVEN = Path(__file__).resolve().parents[3] / "services" / "digits" / "seven.bin"
_CALLS = 8


def of_digits(address: str) -> set[tuple[int, tuple[float, ...]]]:
    """Return the label and the probabilities that each of some calls was answered with.

    Probabilities are single floats, of which two builds of numpy give other last digits.
    """
    request = digits_pb2.ClassifyRequest(pixels=SEVEN.read_bytes())
    with grpc.insecure_channel(address) as channel:
        stub = digits_pb2_grpc.DigitsStub(channel)
        found = [stub.Classify(request, timeout=30) for _ in range(_CALLS)]
    return {(each.label, tuple(round(one, 6) for one in each.probabilities)) for each in found}
