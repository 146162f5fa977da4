"""Endpointing: from the probability of speech in each 32 ms to the begin and end of speech.

The thresholds and the minimum silence are those of Silero's own ``VADIterator``; the hysteresis
between the thresholds keeps a noisy probability from making many short segments.
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNK_MS = 32
_SPEECH_MIN = 0.5
_SILENCE_MAX = 0.35
_SILENCE_MIN_MS = 100


@dataclass(eq=False)
class Endpointer:
    """Endpointing of one stream.

    Attributes:
        at_ms: Milliseconds processed.
        is_speech: Whether the stream is in speech.
    """

    at_ms: int = 0
    is_speech: bool = False
    _silent_since_ms: int | None = None

    def advance(self, probability: float) -> int | None:
        """Process the next chunk.

        Args:
            probability: That it is speech.

        Returns:
            The time at which speech began or ended, if this chunk shows that; ``is_speech`` says
            which.
        """
        begin, self.at_ms = self.at_ms, self.at_ms + CHUNK_MS
        if probability >= _SPEECH_MIN:
            self._silent_since_ms = None
            if not self.is_speech:
                self.is_speech = True
                return begin
        elif probability < _SILENCE_MAX and self.is_speech:
            if self._silent_since_ms is None:
                self._silent_since_ms = begin
            if self.at_ms - self._silent_since_ms >= _SILENCE_MIN_MS:
                silent_since_ms, self._silent_since_ms = self._silent_since_ms, None
                self.is_speech = False
                return silent_since_ms
        return None
