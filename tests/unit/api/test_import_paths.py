"""An import path imports, or is refused as one: no other exception of ours gets out."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyserve.api.code import import_attribute
from pyserve.errors import ImportPathError

# Below a package that nobody has: nothing that exists is imported by chance.
_MODULES = st.text(max_size=20).map(lambda text: f"no_such_package_{text}")


@given(_MODULES, st.text(max_size=12))
@example("no_such_package_..b", "c")
@example("no_such_package_a.b.", "c")
@example("no_such_package_\0", "c")
@example("no_such_package_\ud800", "c")
@example("no_such_package_/x", "c")
def test_what_cannot_be_imported_is_refused(module: str, attribute: str):
    with pytest.raises(ImportPathError):
        import_attribute(f"{module}:{attribute}")


@given(st.text(max_size=20).map(lambda text: text.replace(":", "")))
def test_a_path_without_a_colon_is_refused(text: str):
    with pytest.raises(ImportPathError, match="write module:attribute"):
        import_attribute(text)


@given(st.text(max_size=12))
@example("path..join")
@example("path.")
def test_attributes_that_are_not_there_are_refused(attribute: str):
    with pytest.raises(ImportPathError):
        import_attribute(f"os:x_{attribute}")
