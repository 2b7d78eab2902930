"""Commands that need no cluster: validate, convert, and their files."""
