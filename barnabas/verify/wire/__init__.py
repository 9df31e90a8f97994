"""Thin clients: they send single requests and write every outcome to the history."""
