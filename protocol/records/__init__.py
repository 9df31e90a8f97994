"""Record batches, magic 2: *deflated* as they travel and rest, *inflated* only where a name says so."""
