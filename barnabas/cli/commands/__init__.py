"""The commands of `barnabas`, one module each."""
