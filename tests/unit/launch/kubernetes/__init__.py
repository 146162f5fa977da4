"""The launcher of Kubernetes without a cluster."""
