"""Files from object stores, with a stand-in for fsspec."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pyserve.errors import UsageError
from pyserve.llm import fetching

pytestmark = pytest.mark.parity("G-86")


class Store:
    """Copies a file that says where it is from; fails as often as it is told."""

    def __init__(self) -> None:
        self.failures = 0
        self.copied: list[str] = []

    def filesystem(self, protocol: str) -> "Store":
        self.protocol = protocol
        return self

    def get(self, source: str, target: str, *, recursive: bool) -> None:
        assert recursive
        Path(target, "half").touch()
        if self.failures:
            self.failures -= 1
            raise OSError("reset by peer")
        self.copied.append(source)
        Path(target, "config.json").write_text(source)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    found = Store()
    module = ModuleType("fsspec")
    vars(module)["filesystem"] = found.filesystem
    monkeypatch.setitem(sys.modules, "fsspec", module)
    monkeypatch.setitem(sys.modules, "s3fs", ModuleType("s3fs"))
    monkeypatch.setattr(fetching.tempfile, "gettempdir", lambda: str(tmp_path))
    return found


async def test_what_is_no_address_is_used_where_it_is():
    assert "Qwen/Qwen3-8B" == await fetching.fetched("Qwen/Qwen3-8B")
    assert "/models/m" == await fetching.fetched("/models/m")


def test_an_address_is_copied_once(store: Store):
    first = asyncio.run(fetching.fetched("s3://bucket/m/"))
    again = asyncio.run(fetching.fetched("s3://bucket/m/"))

    assert first == again
    assert ("s3", ["bucket/m/"]) == (store.protocol, store.copied)
    assert "bucket/m/" == Path(first, "config.json").read_text()
    assert [Path(first)] == list(Path(first).parent.iterdir())


def test_a_copy_that_fails_is_tried_again_and_leaves_nothing(store: Store):
    store.failures = 3

    with pytest.raises(UsageError, match=r"s3://bucket/m could not be copied .*reset by peer"):
        asyncio.run(fetching.fetched("s3://bucket/m", tries=2))
    assert [] == list(fetching.cache_folder("s3://bucket/m").parent.iterdir())

    assert Path(asyncio.run(fetching.fetched("s3://bucket/m", tries=2))).is_dir()


async def test_a_package_that_is_missing_is_named(store: Store):
    with pytest.raises(UsageError, match="pip install fsspec gcsfs"):
        await fetching.fetched("gs://bucket/m")


async def test_other_files_are_copied_to_their_folder(store: Store, tmp_path: Path):
    await fetching.fetched_to("s3://bucket/more", str(tmp_path / "there"))

    assert "bucket/more/" == (tmp_path / "there/config.json").read_text()
    with pytest.raises(UsageError, match="extra_files: '/etc'"):
        await fetching.fetched_to("/etc", str(tmp_path))
