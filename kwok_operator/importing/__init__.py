"""Brings nodes, workloads and their history from another cluster: import, record, replay.

nodes/      Nodes become KwokNodeGroups: pools, templates, bounds, prices
pods/       workloads and their pods, cleaned by the tables in fields.py
incidents/  files instead of a cluster; where pods stood; what cluster-autoscaler decided then
traces/     changes of workloads, as lines of a file that can be replayed
"""
