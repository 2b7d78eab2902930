"""One pass over one group: look, decide, record, act; when it is due, and what is told of it."""
