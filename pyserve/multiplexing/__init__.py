"""Many models in one replica: which stay loaded, who waits for a load, what routers are told."""
