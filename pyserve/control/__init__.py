"""The control plane: desired state, reconciliation, the registry of replicas, its services."""
