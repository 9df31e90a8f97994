"""The metadata store's port and its embedded implementation; what every broker knows of the rest."""
