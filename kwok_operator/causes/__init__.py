"""Explains why a pod waited to start: the chain of causes, from a recording or a live cluster."""
