"""Records changes of workloads, and replays them."""
