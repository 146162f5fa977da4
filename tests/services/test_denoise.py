"""The diffusion model: the distribution of its samples, and batched sampling."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

import pyserve
from pyserve.testing import drive
from services.denoise import denoise_pb2
from services.denoise.denoiser import ANY, WIDTH, Floats, Images, Trajectory, advance, as_bytes
from services.denoise.service import Denoise
from services.digits.model import INK, PIXELS, Model


@pytest.fixture(scope="module")
def images() -> Images:
    return Images.load(8)


@pytest.fixture(scope="module")
def service() -> Any:
    return Denoise.func_or_class()


def samples(images: Images, digits: list[int], steps: int) -> Floats:
    side = round(images.pixels.shape[1] ** 0.5)
    trajectories = [Trajectory.begin(seed, side, digit, steps) for seed, digit in enumerate(digits)]
    for _ in range(steps):
        expected = advance(images, trajectories)
    return expected


def request(seed: int, steps: int, digit: int | None = None, side: int = 8) -> Any:
    return denoise_pb2.SampleRequest(seed=seed, steps=steps, digit=digit, side=side)


class TestDenoiser:
    def test_the_denoiser_is_the_posterior_mean(self, images: Images) -> None:
        """Compared with importance sampling."""
        few = Images(images.pixels[:5, :2], images.digits[:5])
        signal, noise, x = 0.8, 0.6, np.array([[0.1, -0.4]])
        rng = np.random.default_rng(0)
        chosen = few.pixels[rng.integers(0, 5, 400_000)]
        drawn = chosen + WIDTH * rng.standard_normal(chosen.shape)
        weights = np.exp(-((x - signal * drawn) ** 2).sum(axis=1) / (2 * noise**2))
        mean = weights @ drawn / weights.sum()
        column = np.ones((1, 1))
        found = few.denoise(x, signal * column, noise * column, [ANY])
        np.testing.assert_allclose(found[0], mean, atol=0.01)

    @pytest.mark.slow
    def test_samples_have_the_mean_and_variance_of_the_data(self, images: Images) -> None:
        drawn = samples(images, [3] * 200, steps=30)
        shown = images.pixels[images.digits == 3]
        variance = shown.var(axis=0) + WIDTH**2
        errors = (drawn.mean(axis=0) - shown.mean(axis=0)) / np.sqrt(variance / len(drawn))
        assert np.abs(errors).max() < 4.5
        assert 0.5 < (errors**2).mean() < 2.0
        assert 0.85 < drawn.var(axis=0).sum() / variance.sum() < 1.15

    def test_too_few_steps_miss_the_variance(self, images: Images) -> None:
        """The bound of the test above can fail."""
        drawn = samples(images, [3] * 200, steps=2)
        shown = images.pixels[images.digits == 3]
        assert drawn.var(axis=0).sum() < 0.7 * shown.var(axis=0).sum()

    @pytest.mark.slow
    def test_a_classifier_recognises_the_samples(self, images: Images) -> None:
        digits = [number % 10 for number in range(300)]
        drawn = samples(images, digits, steps=25)
        pixels = np.frombuffer(b"".join(map(as_bytes, drawn)), np.uint8).reshape(-1, PIXELS)
        named = Model.load().probabilities(pixels).argmax(axis=1)
        assert (named == digits).mean() >= 0.97

    @pytest.mark.slow
    def test_unconditional_samples_have_the_label_frequencies_of_the_data(
        self, images: Images
    ) -> None:
        drawn = samples(images, [ANY] * 400, steps=25)
        pixels = np.frombuffer(b"".join(map(as_bytes, drawn)), np.uint8).reshape(-1, PIXELS)
        named = Model.load().probabilities(pixels).argmax(axis=1)
        counts = np.bincount(named, minlength=10)
        expected = np.bincount(images.digits) / len(images.digits) * 400
        # Chi-square with nine degrees of freedom is above 27.9 once in a thousand.
        assert ((counts - expected) ** 2 / expected).sum() < 27.9


class TestService:
    @pytest.mark.slow
    def test_batching_changes_no_pixel(self, service: Any) -> None:
        requests = [
            request(number, 1 + 7 * number % 24, (None, 3, 8)[number % 3], (8, 4)[number % 2])
            for number in range(18)
        ]
        driven = drive(service, requests)
        together = [values[-1].pixels for values in driven.values]
        alone = [drive(service, [each]).values[0][-1].pixels for each in requests]
        assert together == alone
        assert max(len(step.requests) for step in driven.steps) == 9
        for step in driven.steps:
            assert len({requests[number].side for number in step.requests}) == 1

    def test_a_request_leaves_after_its_own_steps(self, service: Any) -> None:
        driven = drive(service, [request(0, 3), request(1, 20)], step_s=1.0)
        assert [each.ended_s for each in driven.outcomes] == [3.0, 20.0]
        assert [image.left for image in driven.values[0]] == [2, 1, 0]

    def test_resolutions_take_turns(self, service: Any) -> None:
        requests = [request(number, 10, side=(8, 4)[number % 2]) for number in range(4)]
        driven = drive(service, requests, step_s=1.0)
        assert [len(step.requests) for step in driven.steps] == [2] * 20
        ends = [each.ended_s for each in driven.outcomes]
        assert {ends[0], ends[1]} == {19.0, 20.0}
        assert ends[:2] == ends[2:]

    def test_pixels_are_in_range(self, service: Any) -> None:
        for side in (4, 8):
            (image,) = drive(service, [request(0, 20, 1, side)]).values[0][-1:]
            assert (image.side, len(image.pixels)) == (side, side * side)
            assert max(image.pixels) <= INK
            assert min(image.pixels) == 0

    @pytest.mark.parametrize(
        ("wrong", "text"),
        [
            (request(0, 5, 10), "digit: expected 0 to 9, got 10"),
            (request(0, 5, -1), "digit: expected 0 to 9, got -1"),
            (request(0, 0), "steps: expected 1 to 200, got 0"),
            (request(0, 201), "steps: expected 1 to 200, got 201"),
            (request(0, 5, side=5), "side: expected 4 or 8, got 5"),
        ],
    )
    def test_an_invalid_request_says_why(self, service: Any, wrong: Any, text: str) -> None:
        error = drive(service, [wrong]).outcomes[0].error
        assert isinstance(error, pyserve.Abort)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert text in str(error)
