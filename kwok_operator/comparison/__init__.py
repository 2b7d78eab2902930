"""Comparisons of two or more scenarios, the arms: each is rehearsed several times, always on a new
cluster, and statistics say whether their figures differ by more than chance."""
