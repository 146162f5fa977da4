"""Replicas on a Ray cluster, each in an actor. Needs the extra ``pyserve-mesh[ray]``.

``launcher`` drives an ``agent`` by ``messages`` over a ``link``; the agent is a process of its own,
and asks the ``cluster``. ``requested`` says in Ray's words what a replica asks for, and is pure;
``actor`` runs in the cluster; ``ingresses`` has one on each node.
"""
