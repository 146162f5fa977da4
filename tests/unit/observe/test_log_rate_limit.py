"""One line a minute on each subject, however often something happens."""

from pyserve.observe.log_rate_limit import SUBJECTS_MAX, Allowance, LogRateLimit


class Subject:
    """A limiter, and the time that the test moves."""

    def __init__(self) -> None:
        self.now = -100.0
        self.limit = LogRateLimit(lambda: self.now)

    def allowed(self, *times: float, subject: str = "") -> list[float]:
        """Ask at these times; return those at which a line may be written."""
        found = []
        for self.now in times:
            if self.limit.allows(subject):
                found.append(self.now)
        return found


def test_first_line_is_allowed_at_any_time_and_the_next_after_a_minute() -> None:
    times = [-100.0, -99.0, -41.0, -40.0, -39.0, 19.9, 20.0, 500.0, 500.0]

    assert [-100.0, -40.0, 20.0, 500.0] == Subject().allowed(*times)


def test_what_is_refused_does_not_make_the_silence_longer() -> None:
    assert 10 == len(Subject().allowed(*(float(second) for second in range(600))))


def test_subjects_keep_silent_each_for_itself() -> None:
    limiter = Subject()

    assert [0.0] == limiter.allowed(0.0, subject="a")
    assert [30.0] == limiter.allowed(30.0, subject="b")
    assert [60.0] == limiter.allowed(59.0, 60.0, subject="a")
    assert [90.0] == limiter.allowed(60.0, 89.0, 90.0, subject="b")


def test_subjects_that_are_over_are_forgotten() -> None:
    limiter = Subject()
    for number in range(1000):
        limiter.allowed(float(number), subject=str(number))

    assert SUBJECTS_MAX >= len(limiter.limit._silences)


def test_an_allowance_is_spent_at_once_and_comes_back_by_and_by() -> None:
    times = iter([0.0, 0.0, 0.0, 0.0, 0.0, 0.4, 0.5, 0.9, 1.0, 100.0, 100.0, 100.0, 100.0])
    allowance = Allowance(at_once=3, per_s=2.0, clock=lambda: next(times))

    found = [allowance.admit() for _ in range(12)]
    assert [0, 0, 0, None, None, 2, None, 1, 0, 0, 0, None] == found
