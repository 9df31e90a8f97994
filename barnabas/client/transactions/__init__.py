"""The internals of the transactional producer: state, requests and protocol versions."""
