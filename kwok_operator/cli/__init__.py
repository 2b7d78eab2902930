"""The command line. Small commands are wholly in this folder: validate, install, uninstall."""
