"""The simulated cloud: what happens to an instance, and when.

    terms:     the spec.cloud in force when a try began, despite later edits; recorded in status
    draws:     seed, group, serial, purpose ──> a random number ──> a span of time
    arrival:   requested ──> failed, tried again, its Node appears       (drawn again at any time)
    life:      Node ──> Ready, taints off, devices there, notice, gone   (recorded on the Node)
    stock:     which instances get room in stock and pools; asking, record: how that is recorded
    desired:   how each Node of a group should be now, and which Nodes get notice
    shaping:   what to write into a Node for that; annotations, nodeparts: its format there
    summary:   instances in few words, for status, conditions and cluster-autoscaler
    clouds:    what a pass observed, and what the cloud decides on its plan; step: the pass itself

Times are whole milliseconds since the epoch and spans are whole milliseconds: sums and remainders
are exact, so that a course is the same whenever it is computed.

What the names mean:

    ObservedCloud, Mark                   what a pass observed: of the cloud; on a Node (its mark)
    DesiredNode, DesiredNodes             how a Node, and all Nodes of a group, should be now
    DesiredShape                          a DesiredNode and all else that patching the Node needs
    StockDecision, SettledRequests        what stock and pools grant; what to record of it
    CloudDecision                         how the cloud changes a pass's plan
    Life, Birth                           all that was decided about a Node; and its first JSON
    InstanceSeed                          what the draws of one instance depend on
    Phase, State, Fault                   an instance's state, until when; why its creation failed
    Terms, History                        a spec.cloud and since when it holds; all of them
"""
