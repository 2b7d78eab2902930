"""What ends the demo before its end."""


class DemoError(Exception):
    """A step did not do what it should; the text is one line for the person who watches."""
