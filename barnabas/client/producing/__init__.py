"""The internals of the producer: batches, sequence numbers and Produce requests."""
