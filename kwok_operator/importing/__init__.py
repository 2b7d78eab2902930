"""Imports nodes and workloads of another cluster; records and replays changes of its workloads.

nodes/      Nodes become KwokNodeGroups: pools, templates, bounds, prices
pods/       workloads and their pods, reduced to the fields in fields.py
incidents/  files instead of a cluster; the nodes of pods; what cluster-autoscaler decided
traces/     changes of workloads, as lines of a file that can be replayed
"""
