"""The logs in the directories of stopped brokers, read without code of the broker."""
