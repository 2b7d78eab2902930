"""Turns pods and workloads into manifests with the fields that decide scheduling, and no others."""
