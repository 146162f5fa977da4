"""The metrics of a process of a mesh, which are read only when scraped.

``catalogue.py`` names every metric of pyserve, ``families.py`` is the plain data that sources fill,
``answering.py`` is where the admin server of its node asks a process, and ``user.py`` holds what
user code counts. Nothing here imports prometheus_client.
"""

from pyserve.observe.metrics.answering import ProcessMetrics, ScrapePoint, on_loop
from pyserve.observe.metrics.families import (
    MODELS,
    Exemplar,
    Family,
    Histogram,
    Sample,
    Scrape,
    Source,
    Tally,
)

__all__ = [
    "MODELS",
    "Exemplar",
    "Family",
    "Histogram",
    "ProcessMetrics",
    "Sample",
    "Scrape",
    "ScrapePoint",
    "Source",
    "Tally",
    "on_loop",
]
