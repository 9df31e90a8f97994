"""The words of the wire protocol: types, messages, errors, frames, records. No I/O, no clock."""
