"""Comparisons: the runs of two or more arms, each a rehearsal on a cluster of its own."""

"""Two arms of a comparison beside each other: pure, from the figures of their runs."""
