"""The sources of templates and derived groups: ConfigMaps, live nodes, the provider config."""
