"""Record batches of message format v2 (magic 2)."""
