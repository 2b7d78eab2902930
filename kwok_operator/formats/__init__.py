"""Converts texts of Kubernetes and related programs to values, and back. Pure; knows nothing of
KwokNodeGroups."""
