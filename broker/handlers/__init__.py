"""One file for each API, named as its messages."""
