"""What replicas and commands need not import."""

import subprocess
import sys


def test_a_replica_that_asks_for_a_handle_gets_no_driver() -> None:
    """The import would hold its loop for a tenth of a second."""
    code = "import sys, pyserve; pyserve.get_app_handle; print('pyserve.driver.api' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "False" == found.stdout.strip()


def test_a_command_that_runs_a_mesh_imports_nothing_that_serves_in_its_process() -> None:
    """Half of the seconds that `pyserve run` takes before it starts anything were such imports."""
    unneeded = {"pydantic", "watchfiles", "pyserve.replica.loading", "pyserve.driver.local.mesh"}
    code = f"import sys, pyserve.cli.run; print(sorted({unneeded} & sys.modules.keys()))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "[]" == found.stdout.strip()
