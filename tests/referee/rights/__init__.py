"""Rights: requests of principals with different rules, to Apache Kafka and to Barnabas."""
