"""The simulated cloud: what happens to an instance, and when.

    spec.cloud ──terms──> what holds when      (edits; recorded while instances are outstanding)
    draws ──distributions──> spans             (seed, group, serial, what is drawn)
    arrival: asked for ──> failed, tried again, its Node appears          (drawn again at any time)
    life:    Node ──> Ready, taints off, devices there, notice, gone      (recorded on the Node)
    course:  the two together, for one instance
    stock:   who gets what, where it depends on others                    (decided once, recorded)
    interruptions: who is given notice, where only so many may be
    summary: instances without a Node, for status and for cluster-autoscaler

Times are whole milliseconds since the epoch and spans are whole milliseconds: sums and remainders
are exact, so that a course is the same whenever it is computed.
"""
