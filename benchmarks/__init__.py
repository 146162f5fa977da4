"""Workloads, their load generator, and reports; ``make bench`` and ``make soak`` run them."""
