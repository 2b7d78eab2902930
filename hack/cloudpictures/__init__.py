"""The pictures of docs/cloud.md: what becomes of the instances of the samples, over time.

    __main__    writes docs/img/cloud-*.svg, or says which of them are stale
    scenes      which sample is played for how long, and what is asked for meanwhile
    rehearsal   plays it, by the operator's own rules for the simulated cloud (pure)
    drawing     bars over time as SVG (pure)

Nothing of it is needed to use the operator.
"""
