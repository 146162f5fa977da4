"""Replicas on a Ray cluster, each in an actor. Needs the extra ``pyserve-mesh[ray]``.

``wishes`` says in Ray's words what a replica asks for, and is pure; ``actor`` runs in the cluster;
``cluster`` is all that is asked of Ray from here; ``launcher`` drives it.
"""
