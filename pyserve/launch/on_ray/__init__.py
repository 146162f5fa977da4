"""Replicas on a Ray cluster, each in an actor. Needs the extra ``pyserve-mesh[ray]``.

``launcher`` drives an ``agent`` by ``messages`` over a ``link``; the agent is a process of its own
and talks to the ``cluster``. ``resource_request``, which is pure, translates a replica's request
into Ray's terms; ``actor`` runs in the cluster; ``ingresses`` keeps an ingress on each node.
"""
