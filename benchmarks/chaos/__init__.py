"""What users notice while replicas restart, all fail, or get more calls than they can answer."""
