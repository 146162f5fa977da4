"""The parts of the server and of its calls that other packages of pyserve use; not for users."""

from pyserve.aio._handlers import Messages
from pyserve.aio._http_errors import BrokenFile
from pyserve.aio._loaded import find_service, loaded_files
from pyserve.aio._metadata import CLIENT_METADATA_BYTES, CONNECTION_HEADERS
from pyserve.aio._outcome import LATE_DETAILS, is_late, refuse_strangers
from pyserve.aio._tasks import DeferredUnary, on_thread, steps_on_threads
from pyserve.aio._watched import note_failure

__all__ = [
    "CLIENT_METADATA_BYTES",
    "CONNECTION_HEADERS",
    "LATE_DETAILS",
    "BrokenFile",
    "DeferredUnary",
    "Messages",
    "find_service",
    "is_late",
    "loaded_files",
    "note_failure",
    "on_thread",
    "refuse_strangers",
    "steps_on_threads",
]
