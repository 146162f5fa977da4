"""What replicas need not import."""

import subprocess
import sys


def test_a_replica_that_asks_for_a_handle_gets_no_driver() -> None:
    """The import would hold its loop for a tenth of a second."""
    code = "import sys, pyserve; pyserve.get_app_handle; print('pyserve.driver.api' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "False" == found.stdout.strip()
