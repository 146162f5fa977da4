"""The table of rows says what the tests show, and cannot be satisfied by empty ones."""

import pytest

from tests.parity.assertions import asserts_something
from tests.parity.collector import ROOT, Collector
from tests.parity.report import ShownBy, judge, render, unknown_rows
from tests.parity.table import Row, TableError, read_table

pytest_plugins = "pytester"

PAGE = """# Parity
## Runtime (built)
| row | what |
| S-01 | first |
| G-02 | second |
## Doors (open)
| S-03 | third |
## Left out
| G-02 | nobody needs it |
"""


def test_the_page_holds_every_row_once():
    rows = read_table((ROOT / "docs/parity.md").read_text(encoding="utf-8"))

    expected = {f"S-{n:02}" for n in range(1, 96)} | {f"G-{n:02}" for n in range(1, 87)}
    assert expected == set(rows)


def test_rows_have_area_state_and_reason():
    assert [
        Row("S-01", "first", "Runtime", is_built=True),
        Row("G-02", "second", "Runtime", is_built=True, left_out="nobody needs it"),
        Row("S-03", "third", "Doors", is_built=False),
    ] == list(read_table(PAGE).values())


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("| S-01 | because |", "S-01 cannot be left out"),
        ("| G-07 | because |", "G-07 is left out of an area"),
        ("| G-02 | because |", "G-02 stands twice"),
        ("## Another", "write '## <area> \\(built\\)'"),
    ],
)
def test_a_page_that_contradicts_itself_is_refused(addition: str, message: str):
    with pytest.raises(TableError, match=message):
        read_table(PAGE + addition)


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (True, "assert 1 == f()"),
        (True, "with pytest.raises(ValueError): f()"),
        (True, "check_all(1)"),
        (True, "mesh.expect('x')"),
        (True, "helper(1)"),
        (True, "run(helper)"),
        (True, "self.helper()"),
        (False, "f()"),
        (False, "assert True"),
        (False, "check_nothing()"),
        (False, "empty()"),
    ],
)
def test_only_what_can_fail_counts(expected: bool, body: str):
    """An assertion may stand in the test, in what it calls in its file, or in a named check."""
    source = f"""
async def test_it(f):
    {body}

def helper(x):
    again()

def again():
    helper(1)
    assert x

def empty():
    f()

def check_nothing():
    f()
"""
    assert expected == asserts_something(source, "test_it")


def _test(*outcomes, rows=("S-01",), can_fail=True):
    return ShownBy("t.py::test_it", frozenset(rows), can_fail, list(outcomes))


@pytest.mark.parametrize(
    ("expected", "tests"),
    [
        ("ok", [_test("passed", "passed")]),
        ("ok", [_test("passed", "skipped")]),
        ("MISSING", []),
        ("SKIPPED", [_test("skipped")]),
        ("SKIPPED", [_test()]),
        ("EMPTY", [_test("passed", can_fail=False)]),
        ("FAILED", [_test("passed", "failed")]),
        ("FAILED", [_test("passed"), _test("failed")]),
        ("ok", [_test("passed"), _test("passed", can_fail=False), _test("skipped")]),
        ("SKIPPED", [_test("skipped"), _test("passed", can_fail=False)]),
    ],
)
def test_a_built_row_needs_tests_that_passed_and_can_fail(expected: str, tests: list[ShownBy]):
    built, left_out, opened = judge(read_table(PAGE), tests)

    assert (expected, "left out", "open") == (built.verdict, left_out.verdict, opened.verdict)
    assert (expected != "ok") is built.is_bad
    assert not left_out.is_bad
    assert not opened.is_bad


def test_the_print_names_rows_tests_and_reasons():
    printed = render(judge(read_table(PAGE), [_test("passed")]))

    assert (
        """Runtime
  S-01  ok        first
                  t.py::test_it
  G-02  left out  second
                  because: nobody needs it

Doors
  S-03  open      third

1 of 2 rows of built areas work, 1 left out, 1 open"""
        == printed
    )


def test_a_mark_with_an_unknown_row_is_named():
    assert ["t.py::test_it is marked S-99, which docs/parity.md does not have"] == unknown_rows(
        read_table(PAGE), [_test("passed", rows=["S-99", "S-01", "T4"])]
    )


def test_only_tests_of_wanted_rows_run(pytester: pytest.Pytester):
    """Outcomes are those of all cases of a test; tests of other rows are noted, not run."""
    pytester.makeini(
        "[pytest]\nmarkers = parity(row): a row\nasyncio_default_fixture_loop_scope = function\n"
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parity("S-01")
        @pytest.mark.parity("S-02")
        @pytest.mark.parametrize("case", [1, 2, 3])
        def test_shown(case):
            if case == 3:
                pytest.skip("not here")
            assert case == 1

        @pytest.mark.parity("S-03")
        def test_of_an_open_row():
            raise SystemExit

        @pytest.fixture
        def broken():
            yield
            raise ValueError

        @pytest.mark.parity("S-01")
        def test_with_a_failing_end(broken):
            pass

        def test_without_a_mark():
            raise SystemExit
        """
    )
    collector = Collector(["S-01"])

    pytester.inline_run(plugins=[collector])

    found = {test.test.partition("::")[2]: test for test in collector.tests.values()}
    assert {
        "test_shown": (["passed", "failed", "skipped"], True),
        "test_of_an_open_row": ([], False),
        "test_with_a_failing_end": (["passed", "failed"], False),
    } == {name: (test.outcomes, test.can_fail) for name, test in found.items()}
    assert {"S-01", "S-02"} == found["test_shown"].rows
