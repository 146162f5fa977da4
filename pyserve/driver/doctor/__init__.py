"""What ``pyserve doctor`` looks at: this machine, the mesh's files, its processes, what is around.

Each check returns findings, and none of them changes anything.
"""

from pyserve.driver.doctor.examination import examine
from pyserve.driver.doctor.findings import Finding, State

__all__ = ["Finding", "State", "examine"]
