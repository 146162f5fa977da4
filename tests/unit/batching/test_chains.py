"""Batch sizes along a chain of methods."""

import pytest

from pyserve.batching import check_chain


@pytest.mark.parity("S-24")
@pytest.mark.parametrize("sizes", [(), (8,), (8, 8, 4), (4, 8), (0, 7), (8, 0, 6), (1, 5), (6, 3)])
def test_sizes_that_are_multiples_fit(sizes: tuple[int, ...]) -> None:
    assert check_chain(*sizes) is None


@pytest.mark.parity("S-24")
@pytest.mark.parametrize(
    ("sizes", "rest"), [((8, 6), "2 of them"), ((8, 8, 6), "2 of them"), ((6, 4), "2 of them")]
)
def test_sizes_that_are_no_multiples_do_not(sizes: tuple[int, ...], rest: str) -> None:
    found = check_chain(*sizes)
    assert found is not None
    assert rest in found


def test_the_advice_names_sizes_that_fit() -> None:
    assert "such as 8 or 4" in str(check_chain(8, 6))
