"""The server for cluster-autoscaler's externalgrpc protocol: its calls, the store that answers are
read from, the writer that changes groups."""
