"""Makes the CRDs, and checks objects against their schema as the API server would, without an API
server."""
