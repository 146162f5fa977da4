"""What the pages for users say is what happens."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from tests.docs.page import check_compiles, read_blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def _is_executable(page: Path) -> bool:
    return any(block.is_console for block in read_blocks(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_compiles(page: Path):
    for block in read_blocks(page.read_text()):
        if block.language == "python":
            check_compiles(block)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", [*filter(_is_executable, PAGES)], ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path):
    assert run_page(page.read_text(), tmp_path) > 0


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
