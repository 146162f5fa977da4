"""Values that stay where they were made, and the descriptors that travel instead.

``References`` is what a process has one of. Values are written into sealed memory (``holding.py``)
under books with bounds (``store.py``, ``holding.py``), lent to processes of the same machine over
a side socket (``server.py``, ``client.py``, ``wire.py``), and copied to those of others
(``remote.py``).
"""

from pyserve.references.process import References, Remote
from pyserve.references.store import Limits
from pyserve.references.wire import Descriptor

__all__ = ["Descriptor", "Limits", "References", "Remote"]
