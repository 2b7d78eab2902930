"""Imports what is left of an incident: files with the objects of a cluster at one moment.

dump.py reads them into a Reading, as importer.py reads a cluster.
"""
