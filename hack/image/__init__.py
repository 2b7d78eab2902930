"""The image without a container engine: its steps, and a root file system to run the result in.

build.sh is what the Dockerfile runs; sandbox.py runs a command as a container would.
"""
