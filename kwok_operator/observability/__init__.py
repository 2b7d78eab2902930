"""What people and machines can observe of the process: metrics, probes, logs."""
