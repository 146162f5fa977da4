"""Which fields of an object a template overrides, and which it keeps."""

from __future__ import annotations

import pytest

from pyserve.launch.on_kubernetes.pods import lay_over

BASE = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {"name": "replica", "image": "one", "env": [{"name": "A", "value": "1"}]},
        ],
        "tolerations": [{"key": "old"}],
        "priority": 3,
    },
}


@pytest.mark.parametrize(
    ("over", "place", "expected"),
    [
        ({"metadata": {"labels": {"b": "2"}}}, ("metadata", "labels"), {"a": "1", "b": "2"}),
        ({"spec": {"priority": None}}, ("spec", "priority"), None),
        ({"spec": {"tolerations": [{"key": "new"}]}}, ("spec", "tolerations"), [{"key": "new"}]),
        (
            {"spec": {"containers": [{"name": "replica", "image": "two"}]}},
            ("spec", "containers"),
            [{"name": "replica", "image": "two", "env": [{"name": "A", "value": "1"}]}],
        ),
        (
            {
                "spec": {
                    "containers": [
                        {"name": "proxy", "image": "p"},
                        {
                            "name": "replica",
                            "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
                        },
                    ]
                }
            },
            ("spec", "containers"),
            [
                {
                    "name": "replica",
                    "image": "one",
                    "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
                },
                {"name": "proxy", "image": "p"},
            ],
        ),
    ],
)
def test_mappings_and_lists_with_names_are_merged_and_others_replaced(
    over: dict[str, object], place: tuple[str, str], expected: object
) -> None:
    before = repr(BASE)

    merged = lay_over(BASE, over)

    assert isinstance(merged, dict)
    assert expected == merged[place[0]].get(place[1])
    assert before == repr(BASE), "what was there is not changed"
