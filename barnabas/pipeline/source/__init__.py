"""The source: its options, the offsets of its checkpoints, the ranges of its tasks."""
