"""From calls to the messages of services.echo, and back."""

from google.protobuf.message import Message as Protobuf

from services.echo import echo_pb2
from tests.contract.foreign.calls import Call, Message, Metadata

REPLIES: dict[str, type[Protobuf]] = {
    "Perform": echo_pb2.PerformReply,
    "PerformStream": echo_pb2.PerformReply,
    "Collect": echo_pb2.CollectReply,
    "Converse": echo_pb2.PerformReply,
}
REQUESTS: dict[str, type[Protobuf]] = {
    "Perform": echo_pb2.PerformRequest,
    "PerformStream": echo_pb2.PerformStreamRequest,
    "Collect": echo_pb2.PerformRequest,
    "Converse": echo_pb2.PerformRequest,
}


def requests_of(call: Call) -> list[Protobuf]:
    """Return the messages that the call sends."""
    requests = [_request(message) for message in call.messages]
    if call.method == "PerformStream":
        return [echo_pb2.PerformStreamRequest(messages=call.answers, each=requests[0])]
    return [*requests]


def _request(message: Message) -> echo_pb2.PerformRequest:
    request = echo_pb2.PerformRequest(
        payload=message.payload,
        response_bytes=message.response_bytes,
        delay_s=message.delay_s,
        describe=message.describe,
    )
    if message.status_code:
        request.status.code = message.status_code
        request.status.message = message.status_message
        for payload in message.details:
            request.status.details.add().Pack(echo_pb2.EchoReply(payload=payload))
    return request


class Answers:
    """Collects the answers of one call."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.collected: tuple[int, int] | None = None
        self.seen_metadata: Metadata = ()

    def add(self, reply: object) -> None:
        """Take one answer of either type."""
        if isinstance(reply, echo_pb2.CollectReply):
            self.collected = (reply.messages, reply.payload_bytes)
        elif isinstance(reply, echo_pb2.PerformReply):
            self.payloads.append(reply.payload)
            self.seen_metadata = tuple((m.key, m.value) for m in reply.facts.metadata)
