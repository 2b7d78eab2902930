"""The simulated cloud: what happens to an instance, and when.

    terms:     which spec.cloud holds for a try, whatever is edited later; recorded in status
    draws:     seed, group, serial, what is drawn ──> a number ──> a span of time
    arrival:   asked for ──> failed, tried again, its Node appears       (drawn again at any time)
    life:      Node ──> Ready, taints off, devices there, notice, gone   (recorded on the Node)
    stock:     who gets what of stock and pools: decided once; asking, record: written down
    desired:   how each Node of a group should be now, and who is given notice
    shaping:   what to write into a Node for that; annotations, nodeparts: how it is written there
    summary:   instances in few words, for status, conditions and cluster-autoscaler
    clouds:    what a pass has seen, and what the cloud decides on its plan; step: the pass itself

Times are whole milliseconds since the epoch and spans are whole milliseconds: sums and remainders
are exact, so that a course is the same whenever it is computed.

What the names mean:

    ObservedCloud, Mark                   what a pass has seen: of the cloud; on a Node (its mark)
    DesiredNode, DesiredNodes             how a Node, and all Nodes of a group, should be now
    DesiredShape                          that, and all else that the patch of a live Node needs
    StockDecision, SettledRequests        what stock and pools grant; what of it is to be recorded
    CloudDecision                         what the cloud makes of a pass's plan
    Life, Birth                           all that was decided about a Node; and its first JSON
    InstanceSeed                          what the draws of one instance depend on
    Phase, State, Fault                   where an instance is on its way, until when, and why not
    Terms, History                        a spec.cloud and since when it holds; all of them
"""
