"""What wires a driver to its mesh: run, start, status, delete, shutdown."""
