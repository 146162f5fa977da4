"""Replicas on Kubernetes, each in a pod. Needs the extra ``pyserve-mesh[kubernetes]``.

Pure: ``templates`` merges one object into another, ``pods`` makes the object of a replica,
``reading`` interprets objects, ``tracking`` turns the cluster's events into launcher events. Thin:
``api`` talks to the API server, ``watching``, ``output`` and ``nodes`` follow pods, their output
and nodes, ``site`` finds out where the mesh runs, ``launcher`` drives all of it. ``manifests``
writes the objects that an operator applies; it needs no cluster.
"""
