"""The command line, and the commands that are done at once: validate, install, uninstall."""
