"""Checks objects against a CRD's schema, as the API server does, without one."""
