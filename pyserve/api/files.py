"""The answer of a plain handler that is a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyserve.errors import UsageError

# The server sets these for the part that it sends.
_OURS = frozenset({"content-length", "content-range", "accept-ranges"})


@dataclass(frozen=True, slots=True)
class File:
    """A file as the answer of ``__call__`` to a plain HTTP request.

    The native side reads it, at the client's pace. The answer has ``ETag`` and ``Last-Modified``;
    conditional requests and requests for one range are answered accordingly.

    Attributes:
        path: Of a regular file, where the replica runs. It is opened when the handler has returned.
        media_type: The content-type; ``None``: guessed from ``filename``, or else from ``path``.
        filename: Browsers offer to save the file with this name; ``None``: they may show it.
        headers: More headers of the answer, or others than the usual ones.

    Raises:
        UsageError: ``headers`` has a header that depends on the part that is sent.
    """

    path: str | os.PathLike[str]
    media_type: str | None = None
    filename: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if found := sorted(name for name in self.headers if name.lower() in _OURS):
            raise UsageError(
                f"pyserve.File: headers has {', '.join(found)}, which pyserve sets; leave it out"
            )
