"""What is kept of another cluster, and what becomes of it here. Pure: bodies in, manifests out.

    nodes/   Nodes become KwokNodeGroups: pools, templates, bounds, prices
    pods/    workloads and their pods, cleaned by what fields.py allows
    traces/  what happens to workloads, as lines that can be played

What is told of it is in notes.py and ledger.py; names are replaced in anonymous.py.
"""
