"""The first verdict on a copy of a cluster: whether the copy runs as the original did, and whether
all pods find a node again when a zone is lost.
"""
