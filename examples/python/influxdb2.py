"""Sends readings with InfluxDB 2's Python library (pip install influxdb-client).

    BRIM_TOKEN=... python3 influxdb2.py http://127.0.0.1:8430

The library batches lines and retries requests that fail with 429 or 503. Brim ignores
organization and bucket. The sensor id is measurement and tags: weather,site=north.
"""

import os
import sys

from influxdb_client import InfluxDBClient, Point, WriteOptions


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8430"
    lost = []
    with InfluxDBClient(url=url, token=os.environ.get("BRIM_TOKEN", "any"), org="any", enable_gzip=True) as client:
        options = WriteOptions(batch_size=500, flush_interval=1_000, jitter_interval=200, retry_interval=1_000, max_retries=8)
        with client.write_api(write_options=options, error_callback=lambda _, data, e: lost.append((data, e))) as api:
            for i in range(1000):
                api.write(bucket="any", record=Point("influx2").tag("site", f"s{i % 10}").field("temp", 20 + i / 10).field("n", i))
    if lost:
        sys.exit(f"{len(lost)} requests were lost: {lost[0][1]}")
    print("1000 sent")


if __name__ == "__main__":
    main()
