"""How the sending of an answer fails."""


class ClientDisconnected(OSError):
    """The client of a plain HTTP request is gone, or its deadline has passed.

    An ``OSError``, which is what ASGI applications expect of a ``send`` that nobody reads.
    """


class BrokenFile(RuntimeError):
    """A file that is part of an answer has become shorter, or cannot be read.

    Attributes:
        reason: What happened.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path!r} was not sent: {reason}")
        self.reason = reason
