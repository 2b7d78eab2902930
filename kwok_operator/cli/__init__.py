"""The command line. The commands that need few lines are here as a whole: validate, install,
uninstall."""
