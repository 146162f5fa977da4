"""Code whose annotations name what only type checkers import is code like any other."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import pyserve
from pyserve.signatures import annotations_of, read_signature

SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from somewhere import Image

def classify(image: Image, threshold: float = 0.5) -> Image:
    return image

class Classifier:
    def __init__(self, image: Image) -> None:
        self.image = image

    def __call__(self, image: Image) -> str:
        return "cat"
"""


@pytest.fixture(
    params=[
        "from __future__ import annotations\n",
        pytest.param(
            "",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 14), reason="annotations are evaluated at once before 3.14"
            ),
        ),
    ],
    ids=["texts", "evaluated late"],
)
def written(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module that replicas import; what travels by value is cloudpickle's to read."""
    module = ModuleType("written")
    monkeypatch.setitem(sys.modules, "written", module)
    # Not with the future of this file.
    code = compile(request.param + SOURCE, "written.py", "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


def test_its_signature_has_names_and_defaults(written: Any):
    parameters = read_signature(written.classify).parameters
    assert ["image", "threshold"] == list(parameters)
    assert 0.5 == parameters["threshold"].default


def test_annotations_that_name_nothing_are_texts(written: Any):
    assert "Image" == annotations_of(written.classify)["image"]


def test_it_is_deployed_and_its_arguments_are_checked(written: Any):
    deployment = pyserve.deployment(written.Classifier)
    deployment.bind("image")
    with pytest.raises(TypeError, match="image"):
        deployment.bind()
