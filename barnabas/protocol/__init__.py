"""The wire protocol: types, messages, errors, frames and records. No I/O, no clock."""
