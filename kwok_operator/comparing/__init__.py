"""Comparisons: the runs of two arms, each a rehearsal on a cluster of its own."""
