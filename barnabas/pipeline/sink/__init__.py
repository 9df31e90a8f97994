"""The sink: its options, its transactional ids, and the protocol by which a batch is decided."""
