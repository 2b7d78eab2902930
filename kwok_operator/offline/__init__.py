"""Commands that need no cluster (validate, convert), and the files that they read."""
