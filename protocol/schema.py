"""How a message is declared: annotated classes that cover all versions of one message.

A class lists its fields in wire order. An annotation gives the type (`types.py`), an optional
specifier gives the versions in which the field exists, its default and its tag:

    @message
    class EndTxnResponse:
        throttle_time_ms: Int32
        error_code: Int16
        producer_id: Int64 = since(5, default=-1)

A field that a version lacks decodes as its default; encoding a value other than the default into
such a version raises ProtocolError unless the field is `ignorable`.
"""
