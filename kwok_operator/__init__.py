"""A Kubernetes operator that keeps groups of fake nodes at their size."""

__version__ = "0.1.0"
