"""The description of consumer groups, and the reset of their offsets."""
