"""The benchmarks that Ray Serve's guides print of its router, scaled to one machine."""
