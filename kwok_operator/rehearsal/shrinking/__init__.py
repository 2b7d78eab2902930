"""Shrinks a scenario to the smallest one in which an expectation has the same outcome."""
