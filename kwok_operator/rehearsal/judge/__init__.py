"""Recordings of rehearsals and what follows from them: figures, outcomes, verdicts. Purely
computed.
"""
