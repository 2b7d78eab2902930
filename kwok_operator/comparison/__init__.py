"""Comparisons: the runs of two or more arms, each a rehearsal on a cluster of its own."""
