"""Recordings of rehearsals, and what is computed from them without I/O: figures, outcomes,
verdicts.
"""
