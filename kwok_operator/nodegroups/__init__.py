"""One pass over one group: look, decide, record, act; when it is due, and what is told of it."""

"""What is there, as the API server last said: nodes, groups, and what one pass sees of a group."""
