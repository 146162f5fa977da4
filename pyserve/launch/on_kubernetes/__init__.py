"""Replicas on Kubernetes, each in a pod. Needs the extra ``pyserve-mesh[kubernetes]``.

Pure: ``templates`` lays one piece of an object over another, ``pods`` makes the object of a
replica, ``reading`` says what an object means, ``tracking`` turns what the cluster tells into
events. Thin: ``api`` speaks with the API server, ``watching``, ``output`` and ``nodes`` follow what
it has, ``site`` finds out where it is, ``launcher`` drives all of it.
``manifests`` writes what an operator applies; it needs no cluster.
"""
