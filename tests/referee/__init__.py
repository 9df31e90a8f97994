"""The same requests to Apache Kafka and to Barnabas.

A package, so that its fixtures end with its last test.
"""
