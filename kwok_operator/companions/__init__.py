"""Companions of nodes: the CSINode and ResourceSlices that belong to a Node, if a group has any."""
