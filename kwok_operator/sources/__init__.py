"""Where templates and derived groups come from: ConfigMaps, live nodes, the provider config."""
