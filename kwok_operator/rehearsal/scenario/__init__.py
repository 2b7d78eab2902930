"""A scenario: its models, how a file is read, and all checks before it is played."""
