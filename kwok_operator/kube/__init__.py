"""HTTP with an API server: connection, login, client, list and watch. Knows nothing of
KwokNodeGroups."""
