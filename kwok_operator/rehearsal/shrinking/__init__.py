"""Shrinks a scenario to the smallest one in which an expectation comes out the same."""
