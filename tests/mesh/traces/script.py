"""A script that calls a mesh by handles: once below a span of its own, once without."""

from opentelemetry import trace

import pyserve

scores = pyserve.get_app_handle("default").options(method_name="plain")
# The first handle attaches this process to its mesh, and with it the provider is there.
scores.remote(1).result(timeout_s=30)
with trace.get_tracer("script").start_as_current_span("script"):
    scores.remote(2).result(timeout_s=30)
