"""The words of Kafka's wire protocol: types, messages, errors, frames, records. No I/O, no clock."""
