"""Imports files that an incident left: the objects of a cluster at one moment.

dump.py reads them into a Reading, as importer.py reads a live cluster.
"""
