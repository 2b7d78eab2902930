"""Two arms of a comparison beside each other: pure, from the figures of their runs."""
