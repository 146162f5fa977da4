"""What every client is asked to do, and what it tells, in the same words for each of them."""

import base64
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

# The methods of services.echo.Echo, one for each kind. A `Converse` client sends a message,
# awaits its answer, and only then sends the next one.
KINDS = {
    "Perform": "unary_unary",
    "PerformStream": "unary_stream",
    "Collect": "stream_unary",
    "Converse": "stream_stream",
}

Metadata = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class Message:
    """One PerformRequest; see services/echo/echo.proto.

    Attributes:
        details: Of the status: each is the payload of an EchoReply.
    """

    payload: bytes = b""
    response_bytes: int = 0
    delay_s: float = 0.0
    status_code: int = 0
    status_message: str = ""
    describe: bool = False
    details: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call: a method, its messages and what the client does beside.

    Attributes:
        method: One of ``KINDS``, or a name that the service does not have (called as unary).
        messages: What is sent. ``PerformStream`` sends one, and asks for ``answers`` answers.
        metadata: Values of ``-bin`` keys are sent as they are, others as ASCII.
        cancel_after: Cancel once that many answers came; 0: once the call was started.
    """

    method: str = "Perform"
    messages: tuple[Message, ...] = (Message(),)
    answers: int = 1
    metadata: Metadata = ()
    timeout_s: float = 20.0
    cancel_after: int | None = None
    compress: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the call with bytes in base64."""
        call = asdict(self)
        for message in call["messages"]:
            message["payload"] = base64.b64encode(message["payload"]).decode()
            message["details"] = [base64.b64encode(each).decode() for each in message["details"]]
        call["metadata"] = [[key, base64.b64encode(value).decode()] for key, value in self.metadata]
        return call


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the call ended, as the client saw it."""

    code: int
    message: str = ""
    payloads: tuple[bytes, ...] = ()
    collected: tuple[int, int] | None = None  # messages and bytes of a `Collect`
    seen_metadata: Metadata = ()  # what the handler says that it got
    initial_metadata: Metadata = ()
    trailing_metadata: Metadata = ()
    details: tuple[bytes, ...] = ()  # of the status, as in ``Message``
    elapsed_s: float = field(default=0.0, compare=False)

    @classmethod
    def from_json(cls, outcome: dict[str, Any]) -> "Outcome":
        """Build the outcome from what ``to_json`` of another language wrote."""
        values = dict(outcome)
        for name in ("initial_metadata", "trailing_metadata", "seen_metadata"):
            values[name] = tuple((k, base64.b64decode(v)) for k, v in values.get(name, ()))
        for name in ("payloads", "details"):
            values[name] = tuple(map(base64.b64decode, values.get(name, ())))
        if values.get("collected") is not None:
            values["collected"] = tuple(values["collected"])
        return cls(**values)


class Client(Protocol):
    """One foreign client."""

    name: str
    compresses: bool

    async def perform(self, address: str, call: Call) -> Outcome:
        """Open a connection to ``address``, do the call, close the connection."""
