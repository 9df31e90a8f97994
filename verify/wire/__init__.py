"""Thin clients that hide nothing: one request each, its outcome written down as it was."""
