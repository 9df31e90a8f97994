"""The diagnosis and repair of hanging transactions."""
