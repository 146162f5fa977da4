"""How the sending of a file fails."""


class BrokenFile(RuntimeError):
    """A file that is part of an answer has become shorter, or cannot be read.

    Attributes:
        reason: What happened.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path!r} was not sent: {reason}")
        self.reason = reason
