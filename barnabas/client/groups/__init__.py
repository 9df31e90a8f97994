"""The internals of a group member: assignors, embedded protocol and offsets."""
