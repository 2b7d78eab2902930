"""What people and machines see of the process: metrics, probes, logs."""
