"""The process: kopf's handlers, what is started when, leadership, and the end."""
