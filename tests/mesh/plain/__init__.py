"""Plain deployments in a real mesh, called by handles and by other clients."""
