"""Which lines ``pyserve logs --request`` shows."""

import pytest

from pyserve.cli.diagnosis import of_request
from pyserve.wire.v1 import control_pb2

_LINES = """\
A|I 2026-11-24 19:34:54,385 shop [order-7]: nothing is left
A|E 2026-11-24 19:34:54,390 pyserve.replica [order-7 trace=0af7]: unexpected KeyError
B|  of another replica
A|  Traceback (most recent call last):
A|    return tea[name]
A|printed by code
A|  and more of that
A|I 2026-11-24 19:34:55,385 shop [order-77]: nothing is left of [order-7
B|I 2026-11-24 19:34:55,385 shop: [order-7 is not about it
B|{"message": "sold", "request_id": "order-7"}
B|{"message": "sold", "request_id": "order-77"}
A|I 2026-11-24 19:34:56,385 shop [a%20b%5D]: escaped"""


@pytest.mark.parametrize(
    ("request_id", "shown"),
    [("order-7", [0, 1, 3, 4, 9]), ("order-77", [7, 10]), ("a b]", [11]), ("order", [])],
)
def test_lines_of_a_request_are_its_records_with_what_is_below_them(
    request_id: str, shown: list[int]
) -> None:
    lines = [
        control_pb2.LogLine(replica_id=name, line=line)
        for name, _, line in (each.partition("|") for each in _LINES.splitlines())
    ]
    assert shown == [lines.index(each) for each in of_request(lines, request_id)]
