"""The process: what is started when, leadership, kopf, and the end."""
