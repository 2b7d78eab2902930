"""The operator's process: kopf's handlers, the order of start and end, leadership."""
