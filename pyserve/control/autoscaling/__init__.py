"""Autoscaling: measures load, decides how many replicas a deployment needs, and acts on it.

``driver`` alone knows the mesh and its clock; everything else here is pure.
"""
