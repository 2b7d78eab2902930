"""Turns nodes into groups: by --group-by, by their pool (pools.py), or as CA groups them."""
