"""What users write: deployments, application graphs, handles, the replica's context."""
