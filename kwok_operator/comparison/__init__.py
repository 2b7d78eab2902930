"""Compares two or more scenarios, called arms: rehearses each several times, always on a new
cluster, and computes whether their figures (measured numbers) differ by more than chance.
"""
