"""The pages for users describe how pyserve behaves."""

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.docs.page import read_blocks, run_in_process, run_page, run_snippets

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _is_executable(page: Path) -> bool:
    return any(block.is_console for block in read_blocks(page.read_text()))


def _has_snippets(page: Path) -> bool:
    return any(block.is_snippet for block in read_blocks(page.read_text()))


def _name(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


def _readme_first(pages: Iterable[Path]) -> Iterator[object]:
    """Mark all other pages as ones that take long, since together they do."""
    for page in pages:
        is_first = page == ROOT / "README.md"
        yield pytest.param(page, id=_name(page), marks=[] if is_first else pytest.mark.long)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*filter(_has_snippets, PAGES)], ids=_name)
def test_every_snippet_stands_alone(page: Path, tmp_path: Path):
    assert run_snippets(page.read_text(), tmp_path) > 0


@pytest.mark.parametrize("page", [*filter(_is_executable, PAGES)], ids=_name)
def test_every_file_of_a_page_is_used(page: Path):
    """What a page executes is executed whole: a command or another file names each file."""
    blocks = read_blocks(page.read_text())
    for block in blocks:
        others = (each.body for each in blocks if each is not block)
        if block.is_file:
            assert any(Path(block.words[0]).stem in other for other in others), block.words[0]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [*_readme_first(filter(_is_executable, PAGES))])
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path):
    assert run_page(page.read_text(), tmp_path) > 0


def _has_application(page: Path) -> bool:
    blocks = read_blocks(page.read_text())
    return any(block.is_file and "\napp = " in block.body for block in blocks)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [*filter(_has_application, PAGES)], ids=_name)
def test_the_applications_of_a_page_run_in_one_process_too(page: Path, tmp_path: Path):
    assert run_in_process(page.read_text(), tmp_path) > 0


def test_the_quick_start_is_executed():
    assert _is_executable(ROOT / "README.md")


def test_the_certificate_of_the_readme_is_for_both_names_of_this_machine(tmp_path: Path):
    page = (ROOT / "README.md").read_text()
    command = re.search(r"^openssl req .*?cert\.pem$", page, re.MULTILINE | re.DOTALL)
    assert command is not None
    words = shlex.split(command[0].replace("\\\n", " "))
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=30)
    certificate = x509.load_pem_x509_certificate((tmp_path / "cert.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ["localhost"] == names.get_values_for_type(x509.DNSName)
    assert ["127.0.0.1"] == [str(each) for each in names.get_values_for_type(x509.IPAddress)]
