"""Replicas in pods of a real cluster of Kubernetes; `make kubernetes` runs these."""
