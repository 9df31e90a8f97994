"""Records in the wire format of Confluent's schema registry: its client, and three formats."""
