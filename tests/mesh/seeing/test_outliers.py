"""The outlier among the replicas of a mesh is marked, in a terminal and on the page's data."""

from __future__ import annotations

import pytest

from tests.mesh.commands import pyserve
from tests.mesh.seeing.apps import FAST_S, SLOW_S
from tests.mesh.seeing.calling import calls
from tests.mesh.seeing.test_top import look
from tests.mesh.start.processes import address_of, application, standing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_the_slow_replica_is_marked_and_no_other(environment: dict[str, str]):
    with standing(environment), application(environment, "tests.mesh.seeing.apps:uneven"):
        with calls(f"http://{address_of(environment)}/") as answers:
            wait_until(lambda: len(answers) > 200, 50)
            (deployment,) = look(environment)["deployments"]
            text = pyserve("top", "--once", environment=environment).stdout
        outliers = {each["id"]: each["odd"] for each in deployment["replicas"] if each["odd"]}
        assert 1 == len(outliers), deployment
        ((name, words),) = outliers.items()
        # It was to take sixteen times as long; sleeping and calling cost all of them the same.
        assert 4 < float(words.partition(" × as slow as its siblings")[0]) < 17
        (line,) = [each for each in text.splitlines() if each.strip().startswith(name)]
        assert "outlier: " in line
        others = [each for each in deployment["replicas"] if each["id"] not in outliers]
        assert all(FAST_S < each["mean_s"] < SLOW_S / 2 for each in others)
        assert 0.0 == deployment["error_share"]
        assert 0.8 * FAST_S < deployment["p50_s"] < SLOW_S / 2
