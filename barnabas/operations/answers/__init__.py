"""The answers about clusters, each described once: for tables, pages, JSON and its schema."""
