"""The router that every process of a mesh has: its table, what feeds it, and who calls through it.

An ingress, a driver and a replica use it alike; it knows nothing of them, and nothing of the
controller but its protocol.
"""
