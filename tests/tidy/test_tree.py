"""The tree keeps the rules of the house."""

import re
from collections.abc import Iterable

import pytest

from tests.tidy.markdown_rules import markdown_rules
from tests.tidy.project_rules import PROJECT_RULES
from tests.tidy.python_rules import PURE_MODULES, python_rules
from tests.tidy.retired_words import retired_words
from tests.tidy.rules import RULES
from tests.tidy.rust_rules import rust_rules
from tests.tidy.tree import ROOT, Finding, Source, read_tree


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_tree()


def check(findings: Iterable[Finding]) -> None:
    found = sorted(findings)

    assert not found, "\n".join(["", *map(str, found)])


# Parsing all files of Python takes half a minute of processor time.
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "rule", [*RULES, python_rules, retired_words, rust_rules], ids=lambda rule: rule.__name__
)
def test_every_file_keeps(rule, sources: list[Source]):
    check(finding for source in sources for finding in rule(source))


def test_every_page_is_well_formed(sources: list[Source]):
    # Pages show pictures too, which are not among the texts.
    pictures = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/images/*.png")}
    paths = frozenset({source.path for source in sources} | pictures)
    check(finding for source in sources for finding in markdown_rules(source, paths))


@pytest.mark.parametrize("rule", PROJECT_RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps(rule, sources: list[Source]):
    check(rule(sources))


def test_every_module_that_is_called_pure_is_there(sources: list[Source]):
    """A renamed module would otherwise leave the rule without anyone seeing it."""
    assert [] == sorted(set(PURE_MODULES) - {source.path for source in sources})


def test_a_module_that_calls_itself_pure_is_held_to_it(sources: list[Source]):
    claims = re.compile(r'"""[^"]*(?:\bPure[.;]|pure state machine)')
    claiming = {s.path for s in sources if s.under("pyserve") and claims.match(s.text)}

    assert [] == sorted(claiming - set(PURE_MODULES))


def test_the_rules_see_the_tree(sources: list[Source]):
    """The walk reaches every part; a rule that reads nothing would pass for ever."""
    parts = {source.path.partition("/")[0] for source in sources}

    assert {"pyserve", "router_rs", "services", "tests", "docs", "proto"} <= parts
    assert all(_some(sources, suffix) for suffix in (".py", ".rs", ".md", ".proto", ".toml"))


def _some(sources: list[Source], suffix: str) -> bool:
    return any(source.path.endswith(suffix) for source in sources)
