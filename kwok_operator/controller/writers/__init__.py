"""What is written to the API server, and how fast: nodes, pods, status, Events."""
