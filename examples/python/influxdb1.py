"""Sends readings with InfluxDB 1's Python library (pip install influxdb).

    BRIM_TOKEN=... python3 influxdb1.py 127.0.0.1 8430

The token is the password, with any user name. Brim ignores the database.
"""

import os
import sys

from influxdb import InfluxDBClient


def main():
    host, port = (sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 2 else ("127.0.0.1", 8430)
    client = InfluxDBClient(host, port, "any", os.environ.get("BRIM_TOKEN", "any"), "any", gzip=True)
    points = [{"measurement": "influx1", "tags": {"site": f"s{i % 10}"}, "fields": {"temp": 20 + i / 10, "n": i}} for i in range(1000)]
    client.write_points(points, batch_size=500)
    client.close()
    print("1000 sent")


if __name__ == "__main__":
    main()
