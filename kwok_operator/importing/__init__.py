"""Imports nodes and workloads of another cluster; records and replays changes of its workloads.

nodes/      Nodes become KwokNodeGroups: pools, templates, bounds, prices
pods/       workloads and their pods, reduced to the fields in fields.py
incidents/  imports from files; where pods were; what cluster-autoscaler decided
traces/     changes of workloads, as lines of a file that can be replayed
"""
