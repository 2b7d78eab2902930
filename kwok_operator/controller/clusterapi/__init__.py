"""Cluster API: its objects as groups, and Machines that are played."""
