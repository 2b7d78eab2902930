"""`make demo`: the operator at work on a control plane of this machine, for somebody who watches.

    __main__   options, what happens on errors, the end
    story      what is shown, step by step, and what must have come of each step
    facts      what the cluster's answers say (pure)
    progress   how far a scaling is, as a bar and a rate (pure)
    kubectl    kubectl, as if it was typed
    process    a program that the demo starts; keeper.py ends it
    operator   the operator, which outlives the demo
    autoscaler cluster-autoscaler, where there is one, and the shim; both end with their step
    screen     how all of it looks on a terminal, and elsewhere

manifests/ holds what is applied. Nothing of it is needed to use the operator.
"""
