"""Pods and workloads become manifests with what decides scheduling, and nothing else."""
