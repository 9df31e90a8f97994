"""ExpectProducers (key 10000, ours): tells leaders which producers are about to write.

Between brokers only, and without a response. The sender is the transaction coordinator: a leader
that has been told need not ask it before the first record of a transaction (KIP-890).
"""

from typing import Final

from barnabas.protocol.apis import declare
from barnabas.protocol.schema import message
from barnabas.protocol.types import Array, Int16, Int32, Int64, NullableString, String

MOST: Final = 256
"""The most producers in a request: they are noted in one go, in about a millisecond."""


@message
class ExpectedProducer:
    """A producer of the older protocol whose transaction has the partition.

    A partition that has seen a newer coordinator epoch from the producer asks all the same. The
    principal is None without an authorizer.
    """

    transactional_id: String
    principal: NullableString
    producer_id: Int64
    producer_epoch: Int16
    coordinator_epoch: Int32
    topic: String
    partition_index: Int32


@message
class ExpectProducersRequest:
    """The producers that have joined partitions of the receiver."""

    producers: Array[ExpectedProducer]


@message
class ExpectProducersResponse:
    """Never sent."""


API = declare(
    __name__,
    flexible=0,
    request=ExpectProducersRequest,
    response=ExpectProducersResponse,
    max_elements=MOST,
)
