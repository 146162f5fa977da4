"""pyserve on Ray against Ray Serve: one cluster, the same application, the same clients."""
