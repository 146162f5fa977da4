"""Behaviour tests that run on grpcio's server and client and on ours, with one expectation."""
