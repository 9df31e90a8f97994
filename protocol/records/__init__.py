"""Record batches, magic 2: *deflated* as they travel, *inflated* where a name says so."""
