"""Clients that share no code with us call through the ingress, and get what gRPC promises."""
