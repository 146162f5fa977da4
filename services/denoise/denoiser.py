"""A diffusion model of the digits of scikit-learn, with a closed-form denoiser.

The data distribution is a mixture of Gaussians, one around each training image. Its optimal
denoiser needs no training: it is the posterior mean of the image given the noisy one (Karras et
al., 2022, appendix B.3, where the Gaussians have no width).

The sampler is deterministic DDIM (Song et al., 2021): the initial noise determines the sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.digits import dataset
from services.digits.model import INK

SIDES = (4, 8)
ANY = -1  # in place of a digit
# Standard deviation of the Gaussians, on a scale where paper is -1 and ink is 1. Arbitrary: samples
# differ from the training images and are still digits.
WIDTH = 0.12
# Of the cosine schedule; at a right angle there would be no signal at all.
_FIRST_ANGLE = 0.49 * np.pi

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Images:
    """The training images of one resolution, and their denoiser.

    Attributes:
        pixels: Shape ``(images, pixels)``, from -1 (paper) to 1 (ink).
        digits: The labels; shape ``(images,)``.
    """

    pixels: Floats
    digits: NDArray[np.int64]

    @classmethod
    def load(cls, side: int) -> Images:
        """Return the training images, averaged down if ``side`` is less than 8."""
        part = dataset.load().train
        factor = 8 // side
        blocks = part.images.reshape(-1, side, factor, side, factor)
        pixels = blocks.mean(axis=(2, 4)).reshape(-1, side * side)
        return cls(pixels / (INK / 2) - 1.0, part.labels)

    def denoise(self, x: Floats, signal: Floats, noise: Floats, digits: list[int]) -> Floats:
        """Return the posterior mean of images, given noisy ones.

        Args:
            x: Noisy images, ``signal * image + noise * normal``; shape ``(n, pixels)``.
            signal: Shape ``(n, 1)``.
            noise: Shape ``(n, 1)``.
            digits: The label of each, or ``ANY``.
        """
        spread = noise**2 + (signal * WIDTH) ** 2
        squares = (self.pixels**2).sum(axis=1)
        # Log weights of the training images, up to a constant.
        logs = (signal * (x @ self.pixels.T) - 0.5 * signal**2 * squares) / spread
        for row, digit in zip(logs, digits, strict=True):
            if digit != ANY:
                row[self.digits != digit] = -np.inf
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        centres = weights @ self.pixels
        mean: Floats = centres + signal * WIDTH**2 / spread * (x - signal * centres)
        return mean


@dataclass(eq=False)
class Trajectory:
    """The state of one request.

    Attributes:
        x: The noisy image; shape ``(pixels,)``.
        digit: Its label, or ``ANY``.
        steps: Number of steps.
        made: Number of steps made.
    """

    x: Floats
    digit: int
    steps: int
    made: int = 0

    @classmethod
    def begin(cls, seed: int, side: int, digit: int, steps: int) -> Trajectory:
        """Return the initial noise of a request."""
        rng = np.random.default_rng(seed)
        return cls(rng.standard_normal(side * side), digit, steps)

    def signal_and_noise(self, made: int) -> tuple[float, float]:
        """Return the scales of signal and noise after so many steps."""
        angle = _FIRST_ANGLE * (1.0 - made / self.steps)
        return float(np.cos(angle)), float(np.sin(angle))


def advance(images: Images, trajectories: list[Trajectory]) -> Floats:
    """Make one DDIM step for trajectories of one resolution.

    Returns:
        The denoised image of each; after the last step, the sample.
    """
    x = np.stack([each.x for each in trajectories])
    now = np.array([each.signal_and_noise(each.made) for each in trajectories])
    then = np.array([each.signal_and_noise(each.made + 1) for each in trajectories])
    signal, noise = now[:, :1], now[:, 1:]
    expected = images.denoise(x, signal, noise, [each.digit for each in trajectories])
    following = then[:, :1] * expected + then[:, 1:] * (x - signal * expected) / noise
    for trajectory, row in zip(trajectories, following, strict=True):
        trajectory.x = row
        trajectory.made += 1
    return expected


def as_bytes(pixels: Floats) -> bytes:
    """Return pixels as bytes from 0 to ``INK``."""
    scaled = np.clip(np.rint((pixels + 1.0) * (INK / 2)), 0, INK)
    return scaled.astype(np.uint8).tobytes()
