"""Scenarios: their models, how a file is read, and all checks before one is played."""
