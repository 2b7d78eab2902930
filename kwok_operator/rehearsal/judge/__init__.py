"""Rehearsals, as far as they are pure: scenarios, recordings, figures, verdicts, reports."""
