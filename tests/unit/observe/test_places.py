"""The place of an exception is in the code of a user, wherever that lies."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from pyserve.api.code import import_attribute
from pyserve.config import check_address
from pyserve.errors import OptionError
from pyserve.observe.failures import describe, format_from_user_code

# Below a folder that is named as this package, as `git clone` makes one.
HOMES = ["pyserve", "my pyserve", "models"]


@pytest.fixture(params=HOMES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    home: Path = tmp_path / str(request.param) / "shop"
    home.mkdir(parents=True)
    return home


def _module(folder: Path, text: str) -> ModuleType:
    file = folder / "prices.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("prices", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_innermost_line_of_user_code_is_named(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        _module(folder, "def half():\n    return 1 / 0\n\n\nhalf()\n")

    assert f"ZeroDivisionError: division by zero (at {folder / 'prices.py'}:2)" == describe(
        raised.value
    )


def test_frames_of_this_package_are_not_user_code(folder: Path) -> None:
    module = _module(folder, "def use(function):\n    function('--address', 'nowhere')\n")
    with pytest.raises(OptionError) as raised:
        module.use(check_address)

    assert describe(raised.value).endswith(f"(at {folder / 'prices.py'}:2)")


def test_of_a_syntax_error_the_file_that_cannot_be_parsed_is_named(folder: Path) -> None:
    with pytest.raises(SyntaxError) as raised:
        _module(folder, "x = 1\ny = (\n")

    assert f"SyntaxError: '(' was never closed (at {folder / 'prices.py'}:2)" == describe(
        raised.value
    )


def test_an_exception_without_user_code_has_no_place() -> None:
    assert "OptionError: no such option" == describe(OptionError("no such option"))


def test_a_traceback_begins_with_user_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "unlikely_prices.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ZeroDivisionError) as raised:
        import_attribute("unlikely_prices:app")

    assert raised.value.__traceback__ is not None
    error = raised.value.with_traceback(raised.value.__traceback__.tb_next)  # Without this test.
    expected = f'  File "{folder / "unlikely_prices.py"}", line 1, in <module>'
    assert expected == format_from_user_code(error).splitlines()[1]


def test_of_a_file_that_cannot_be_parsed_nothing_but_its_line_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "unlikely_names.py").write_text("x = 1\ny = (\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(SyntaxError) as raised:
        import_attribute("unlikely_names:app")

    assert raised.value.__traceback__ is not None
    error = raised.value.with_traceback(raised.value.__traceback__.tb_next)  # Without this test.
    lines = format_from_user_code(error).splitlines()
    assert f'  File "{folder / "unlikely_names.py"}", line 2' == lines[-4]
    assert 1 == sum(line.startswith("  File ") for line in lines)


def test_a_traceback_has_no_frames_of_this_package(folder: Path) -> None:
    """Nor has that of an exception that it came from."""
    module = _module(
        folder,
        "def use(function):\n"
        "    try:\n"
        "        function('--address', 'nowhere')\n"
        "    except Exception as error:\n"
        "        raise ValueError('no address') from error\n",
    )
    with pytest.raises(ValueError, match="no address") as raised:
        module.use(check_address)

    lines = format_from_user_code(raised.value).splitlines()
    files = {line.split('"')[1] for line in lines if line.startswith("  File ")}
    assert {__file__, str(folder / "prices.py")} == files
    assert 2 == lines.count("Traceback (most recent call last):")


def test_a_traceback_without_user_code_is_shown_whole() -> None:
    """As of a mistake of ours, in a thread."""
    with ThreadPoolExecutor() as pool:
        error = pool.submit(check_address, "--address", "nowhere").exception()
    assert error is not None
    shown = format_from_user_code(error)
    assert "in check_address" in shown
    assert "in run" in shown


def test_a_chain_of_any_length_is_shown() -> None:
    error = ValueError("first")
    for number in range(2000):
        error, error.__context__ = ValueError(number), error
    assert "ValueError: first" in format_from_user_code(error)
