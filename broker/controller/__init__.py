"""The one broker that decides for all: topics, leaders, in-sync sets."""
