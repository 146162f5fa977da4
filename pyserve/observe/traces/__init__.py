"""Spans of OpenTelemetry: of calls, batches, model loads and child calls.

``pyserve.observe.traces.process`` alone is imported by those who make spans; the rest imports
OpenTelemetry, and is loaded in processes that trace.
"""
