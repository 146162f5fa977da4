"""Replicas on Kubernetes, each in a pod. Needs the extra ``pyserve-mesh[kubernetes]``.

Pure: ``pods`` makes the object of a replica from the user's template, ``reading`` interprets
objects and turns the cluster's events into launcher events. Thin: ``api`` talks to the API server
and follows pods, nodes and their output, ``site`` finds out where the mesh runs, ``launcher``
drives all of it. ``manifests`` writes the objects that an operator applies; it
needs no cluster.
"""
