"""What is there, as the API server last said: nodes, groups, and what one pass sees of a group."""
