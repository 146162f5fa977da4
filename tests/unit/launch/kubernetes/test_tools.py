"""Helm and kustomize themselves, where they are: skipped tests show no row of the parity table."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.release.kubernetes_files import FOLDER
from tests.unit.launch.kubernetes.test_manifests import (
    AS_VALUES,
    CHART_VALUES,
    in_base,
    normal,
    without_namespace,
)


@pytest.mark.external
def test_helm_itself_says_what_the_command_prints(tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("there is no helm on PATH")
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(CHART_VALUES))
    command = [
        *(helm, "template", "mesh", str(FOLDER / "chart")),
        *("--namespace", "serving", "--values", str(values)),
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)

    assert 0 == done.returncode, done.stderr
    assert without_namespace(AS_VALUES) == normal(list(yaml.safe_load_all(done.stdout)))


@pytest.mark.external
def test_kustomize_itself_says_what_the_command_prints() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on PATH")

    done = subprocess.run(
        [kubectl, "kustomize", str(FOLDER / "base")],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )

    assert 0 == done.returncode, done.stderr
    assert in_base() == normal(list(yaml.safe_load_all(done.stdout)))
