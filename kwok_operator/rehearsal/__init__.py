"""Rehearsals: a scenario is played on a cluster, recorded, and judged.

Operator, shim and autoscaler run as processes, as users run them. `scenario/`, `judge/` and
`report/` are pure: they contain the scenarios, the recordings with their verdicts, and the reports.
`shrinking/` makes a scenario smaller by playing it again and again.
"""
