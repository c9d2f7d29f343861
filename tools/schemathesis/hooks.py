"""What schemathesis has to know about NDJSON and protobuf: they are sent as they are."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson", "application/x-protobuf")
def as_is(ctx, value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value).encode()
