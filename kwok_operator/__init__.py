"""Groups of fake Kubernetes nodes, kept at their size."""

__version__ = "0.1.0"
