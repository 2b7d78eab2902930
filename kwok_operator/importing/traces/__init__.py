"""Records changes of a cluster's workloads in a file, and replays them in another cluster."""
