"""Changes of the call mix on a real mesh, the default routing policy beside ``least``."""
