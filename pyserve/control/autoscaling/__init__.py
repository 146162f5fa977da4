"""How many replicas a deployment shall have: what is measured, what is decided, who does it.

``driver`` alone knows the mesh and its clock; everything else here is pure.
"""
