"""The handlers: one module for each API, with the name of its messages."""
