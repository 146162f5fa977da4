"""The reader of pages notices when a page is wrong."""

from pathlib import Path

import pytest

from tests.docs.page import run_page, run_snippets

SERVER = """\
```python server.py
import signal, sys
print("listening on 127.0.0.1:4711", flush=True)
signal.sigwait([signal.SIGINT])
print("bye", flush=True)
sys.exit(EXIT)
```
```console server
$ python server.py
listening on ...
```
"""


def test_a_page_is_read_as_files_and_commands(tmp_path: Path):
    page = (
        "# T\n```python sub/a.py\nprint('one')\nprint('two')\n```\nthen\n"
        "```console\n$ python sub/a.py\none\n...\n$ python \\\n    -c pass\n```\n"
        "```sh\nexit 1\n```\n"
    )

    assert 2 == run_page(page, tmp_path)
    assert (tmp_path / "sub" / "a.py").exists()


def test_a_block_is_run_where_its_program_is(tmp_path: Path):
    page = "```console {}\n$ echo one\none\n```\n"

    assert 1 == run_page(page.format("sh"), tmp_path)
    assert 0 == run_page(page.format("no-such-program"), tmp_path)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "the page says:\ntwo"),
        ("```console\n$ echo one\n```\n", "printed:\none"),
        ("```console\n$ false\n```\n", "exit 1"),
    ],
)
def test_a_command_that_does_not_do_what_the_page_shows_is_noticed(
    block: str, message: str, tmp_path: Path
):
    with pytest.raises(AssertionError, match=message):
        run_page(block, tmp_path)


def test_the_address_of_a_server_replaces_the_printed_one(tmp_path: Path):
    page = SERVER.replace("EXIT", "0")
    page += "```console\n$ echo 127.0.0.1:8000 | cut -d: -f2\n4711\n```\n"

    assert 2 == run_page(page, tmp_path)


def test_a_server_that_ends_badly_is_noticed(tmp_path: Path):
    with pytest.raises(AssertionError, match="exit 3"):
        run_page(SERVER.replace("EXIT", "3"), tmp_path)


def test_a_server_that_ends_before_it_is_ready_is_noticed(tmp_path: Path):
    with pytest.raises(AssertionError, match="ended without 'ready'"):
        run_page("```console server\n$ false\nready\n```\n", tmp_path)


def test_each_snippet_is_run_without_the_others(tmp_path: Path):
    first, second = "```python\none = 1\n```\n", "```python\nprint(one)\n```\n"

    assert 1 == run_snippets(first, tmp_path)
    with pytest.raises(AssertionError, match=r"line_4\.py(.|\n)*'one' is not defined"):
        run_snippets(first + second, tmp_path)


@pytest.mark.parametrize("body", ["return 1", "await f()", "f("])
def test_a_snippet_that_is_no_module_is_noticed(body: str, tmp_path: Path):
    with pytest.raises(AssertionError, match="SyntaxError"):
        run_snippets(f"```python\n{body}\n```\n", tmp_path)
