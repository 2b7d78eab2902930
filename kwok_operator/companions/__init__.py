"""Companions of nodes: the CSINode and ResourceSlices that belong to a Node, if its group's
template has any."""
