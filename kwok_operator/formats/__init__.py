"""Texts of Kubernetes, and of programs about it, as values and back: pure, and without groups."""
