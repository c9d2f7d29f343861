"""Sends readings over gRPC (pip install grpcio protobuf; grpcio-tools to generate).

    python3 -m grpc_tools.protoc -I pkg/telemetrypb --python_out=OUT --grpc_python_out=OUT brim/v1/ingest.proto
    PYTHONPATH=OUT BRIM_TOKEN=... python3 examples/python/grpc_stream.py 127.0.0.1:8431

One WriteStream carries all requests. The call has an Idempotency-Key and each request an id,
so a request may be sent again on another stream: it is accepted once.
"""

import os
import sys
import time
import uuid

import grpc
from brim.v1 import ingest_pb2 as pb
from brim.v1 import ingest_pb2_grpc


def requests(now):
    """Ten requests of a hundred readings of one sensor each, in columns."""
    for n in range(10):
        series = pb.Series(
            sensor_id=f"grpc-{n}",
            ts_ms=[now + i for i in range(100)],
            columns=[pb.Column(name="t", doubles=[20 + i / 10 for i in range(100)])],
        )
        yield pb.WriteRequest(request_id=str(n), series=[series])


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8431"
    metadata = [("idempotency-key", uuid.uuid4().hex)]
    if "BRIM_TOKEN" in os.environ:
        metadata.append(("authorization", "Bearer " + os.environ["BRIM_TOKEN"]))
    now = time.time_ns() // 1_000_000
    with grpc.insecure_channel(address) as channel:
        stub = ingest_pb2_grpc.IngestServiceStub(channel)
        for _ in range(2):  # the second time, nothing new is accepted
            accepted = 0
            for response in stub.WriteStream(requests(now), metadata=metadata, timeout=60):
                if response.HasField("error"):
                    sys.exit(f"request {response.request_id}: {response.error.code}: {response.error.message}")
                accepted += response.accepted
            print(accepted, "accepted")


if __name__ == "__main__":
    main()
