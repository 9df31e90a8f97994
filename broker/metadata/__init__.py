"""The metadata store's port, its embedded implementation, and the cache that every broker has."""
