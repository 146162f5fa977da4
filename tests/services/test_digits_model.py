"""The digits' data and model, without a mesh."""

import numpy as np
import pytest

from services.digits import dataset
from services.digits.demo import find_problems
from services.digits.model import MODEL_PATH, PIXELS, Model
from services.digits.rounds import Answer, Summary, summarise


@pytest.fixture(scope="module")
def split():
    return dataset.load()


def test_the_two_parts_are_disjoint_and_complete(split):
    train, held_out = set(split.train.index.tolist()), set(split.held_out.index.tolist())
    assert 360 == len(held_out) == len(split.held_out.labels)
    assert set() == train & held_out
    assert set(range(1797)) == train | held_out


def test_no_held_out_image_appears_in_the_training_part_under_another_index(split):
    train = {image.tobytes() for image in split.train.images}
    held_out = {image.tobytes() for image in split.held_out.images}
    assert set() == train & held_out


def test_the_split_is_the_same_every_time(split):
    again = dataset.load()
    assert split.held_out.index.tolist() == again.held_out.index.tolist()
    assert split.train.images.tobytes() == again.train.images.tobytes()


def test_the_committed_model_names_at_least_98_percent_of_the_held_out_images(split):
    from services.digits.train import accuracy

    assert accuracy(Model.load(), split.held_out) >= 0.98


def test_probabilities_sum_to_one_and_stay_finite():
    images = np.array([[0] * PIXELS, [16] * PIXELS], dtype=np.uint8)
    probabilities = Model.load().probabilities(images)
    assert (2, 10) == probabilities.shape
    assert np.isfinite(probabilities).all()
    assert [1.0, 1.0] == pytest.approx(probabilities.sum(axis=1).tolist(), abs=1e-6)


def test_a_model_survives_a_file(tmp_path):
    model = Model.load()
    model.save(tmp_path / "copy.npz")
    copy = Model.load(tmp_path / "copy.npz")
    assert all(
        (getattr(model, name) == getattr(copy, name)).all() for name in Model.__dataclass_fields__
    )


def test_a_file_without_a_model_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", something=np.zeros(1))
    with pytest.raises(ValueError, match="lacks hidden_bias"):
        Model.load(tmp_path / "other.npz")


def test_a_summary_counts_every_batch_once():
    answers = [
        Answer(right=True, latency_s=0.001, replica_id="b", batch_size=1),
        *[Answer(right=True, latency_s=0.003, replica_id="a", batch_size=3)] * 2,
        Answer(right=False, latency_s=0.005, replica_id="a", batch_size=3),
    ]
    summary = summarise(answers, elapsed_s=2.0)
    assert (4, 0.75, 2.0) == (summary.calls, summary.accuracy, summary.calls_per_s)
    assert 2.0 == pytest.approx(summary.batch_size_mean)
    assert 3.0 == pytest.approx(summary.p50_ms)
    assert {"a": 3, "b": 1} == summary.calls_of_replica


@pytest.mark.parametrize(
    ("accuracy_share", "replicas", "expected"),
    [
        (0.95, ["a"], []),
        (0.949, ["a"], ["accuracy 94.90% is below 95%"]),
        (1.0, ["b", "a"], ["replica b answered nothing"]),
    ],
)
def test_the_demonstration_fails_on_bad_labels_and_on_idle_replicas(
    accuracy_share, replicas, expected
):
    summary = Summary(
        calls=1, accuracy=accuracy_share, calls_per_s=1, p50_ms=1, p99_ms=1, batch_size_mean=1,
        calls_of_replica={"a": 1},
    )  # fmt: skip
    assert expected == find_problems(summary, replicas)


def test_the_sample_image_is_a_seven():
    """The demonstration tells people to send it."""
    pixels = (MODEL_PATH.parent / "seven.bin").read_bytes()
    image = np.frombuffer(pixels, dtype=np.uint8).reshape(1, PIXELS)
    assert 7 == Model.load().probabilities(image).argmax()
