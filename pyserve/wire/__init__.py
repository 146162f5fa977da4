"""Messages between the mesh's processes, generated from ``proto/pyserve/wire``."""
