"""Answers as told: the subject of the protocol tests and of the benchmarks."""
