"""Rehearsals: a scenario is played on a cluster, watched, and judged.

A rehearsal is a client like any other: operator, shim and autoscaler run as processes, as users run
them. What a scenario, a recording and a verdict are is the core's (`rehearsal`).
"""
