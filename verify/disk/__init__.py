"""Logs as they lie in the directories of stopped brokers, read without any part of a broker."""
