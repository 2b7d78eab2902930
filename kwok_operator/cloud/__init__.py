"""The simulated cloud: what happens to an instance, and when.

    terms:     the spec.cloud in force when a try began, despite later edits; recorded in status
    draws:     seed, group, serial, purpose ──> a random number ──> a span of time
    arrival:   requested ──> failed, tried again, its Node appears       (drawn anew, always alike)
    life:      Node ──> Ready, taints off, devices there, notice of its end, gone   (on the Node)
    stock:     which instances get room in stock and pools
    room:      what a pass grants and refuses, by stock; record: the refusals, as status has them
    desired:   how each Node of a group should be now, and which Nodes get notice of their end
    shaping:   what to write into a Node to make it so; annotations, nodeparts: in which form
    summary:   instances in few words, for status, conditions and cluster-autoscaler
    clouds:    what a pass observed, and what the cloud decides on its plan; step: the pass itself

Times are whole milliseconds since the epoch and spans are whole milliseconds: sums and remainders
are exact, so that a course is the same whenever it is computed.

What the names mean:

    State            what an instance is doing
    Phase            a State, and until when it lasts
    Fault            why the creation of an instance failed
    Terms            a spec.cloud, and since when it holds
    History          all Terms of a group
    InstanceSeed     what the draws of one instance depend on
    Life             the course drawn for a Node: delays, taints, flapping, end
    Birth            the first JSON of a Node
    Mark             what the cloud has recorded on a Node, in annotations and a label
    ObservedCloud    what a pass knows of the cloud before it plans
    CloudDecision    how the cloud changes the plan of a pass
    StockDecision    what stock and pools grant
    SettledRequests  what status is to record of a StockDecision
    DesiredNode      how a Node should be now
    DesiredNodes     how all Nodes of a group should be now
    DesiredShape     a DesiredNode, and all else that patching the Node needs
"""
