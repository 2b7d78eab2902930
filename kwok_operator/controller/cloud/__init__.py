"""The simulated cloud at work: instances without a Node, pools, kwok, and nodes that are held."""
