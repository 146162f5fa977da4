"""What stands in front of the replicas: the routing table's feed and the listener."""
