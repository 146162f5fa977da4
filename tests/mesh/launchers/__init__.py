"""One contract, and every launcher that has to keep it."""
