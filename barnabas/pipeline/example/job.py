"""The job of the example, as the file that a reader finds in the example's directory."""

from typing import Final

from barnabas.pipeline.example.orders import BROKEN_TOPIC, CENTS, SUMS_TOPIC, TOPIC

JOB_FILE: Final = "job.yaml"
DATA: Final = "data"
"""The folder next to the job file: the brokers' logs, the checkpoint and the driver's log."""

_TEXT: Final = """\
# The job of `barnabas pipeline example`: orders become sums by minute and category.
# Change it and start the example again: this file stays, its data begin anew.
#
# `barnabas pipeline check {file}` checks it without running it.

name: order-sums
bootstrap: localhost:9092        # The example passes the addresses of its own brokers.

source:
  topic: {orders}
  view: orders
  codec: json
  schema:
    order_id: bigint not null
    time: timestamp not null
    product: string not null
    quantity: int not null
  options:
    startingOffsets: earliest

steps:
  # An order may be this late. Orders of yesterday are in the stream as well: they are dropped.
  - view: in_time
    watermark: {{column: time, delay: 2 minutes}}

  # Some orders are sent twice.
  - view: unique_orders
    dedupe: {{columns: [order_id], within_watermark: true}}

  # The record's place goes with each row in _lineage, so that `verify` can compare.
  - view: priced
    sql: |
      SELECT o.time, p.category, o.quantity * p.cents AS cents, o._lineage
      FROM unique_orders o
      LEFT JOIN VALUES
{prices}
        AS p(product, category, cents) ON o.product = p.product

  - view: sums
    sql: |
      SELECT window(time, '1 minute').start AS minute, coalesce(category, 'other') AS category,
             count(*) AS orders, sum(cents) AS cents, collect_list(_lineage) AS _lineage
      FROM priced
      GROUP BY window(time, '1 minute'), category

sink:
  topic: {sums}
  key: category

# What cannot be parsed goes there unchanged, with the reason in a header.
bad_records: {broken}
lineage: true
trigger: 1 second
checkpoint: {data}/checkpoint

spark:
  spark.master: local[2]
  spark.driver.memory: 1g
  spark.driver.extraJavaOptions: {java}     # Starts fast; remove it for speed later.
  spark.sql.shuffle.partitions: 2
"""


def job_text() -> str:
    """Return the content of the job file."""
    rows = [f"        ('{name}', '{kind}', {cents})" for name, (kind, cents) in CENTS.items()]
    return _TEXT.format(
        file=JOB_FILE,
        data=DATA,
        java="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        orders=TOPIC,
        sums=SUMS_TOPIC,
        broken=BROKEN_TOPIC,
        prices=",\n".join(rows),
    )
