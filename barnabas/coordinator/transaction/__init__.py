"""The transaction coordinator of KIP-98, KIP-890 and KIP-609, as a pure machine."""
