"""Writes readings of 1,000 hosts for some seconds, 1,000 a call, and prints how many, the CPU
time that it took, and the seconds until all were stored.

usage: write.py insert|brim SECONDS MONGO-URI BRIM-URL ADMIN-URL
"""

import datetime
import json
import resource
import sys
import time
import urllib.request

FIELDS = "user system idle nice iowait irq softirq steal guest guest_nice".split()


def reading(host: int, step: int, when) -> dict:
    fields = {name: (host * 7 + step * 13 + i * 31) % 101 for i, name in enumerate(FIELDS)}
    return {"sensorId": f"host_{host}", "ts": when, "fields": fields}


def main(way: str, seconds: float, uri: str, brim: str, admin: str) -> None:
    if way == "insert":
        import pymongo

        collection = pymongo.MongoClient(uri, w="majority")["drivers"][f"python {time.time()}"]

        def write(step: int) -> None:
            when = begin + datetime.timedelta(seconds=10 * step)
            collection.insert_many([reading(host, step, when) for host in range(1000)], ordered=False)
    else:

        def write(step: int) -> None:
            when = int(begin.timestamp() * 1000) + 10_000 * step
            body = "\n".join(json.dumps(reading(host, step, when)) for host in range(1000))
            post(brim + "/v1/readings", body.encode())

    def post(url: str, body: bytes) -> None:
        request = urllib.request.Request(url, body, {"Content-Type": "application/x-ndjson"})
        with urllib.request.urlopen(request) as answer:
            if answer.status != 200:
                sys.exit(f"{url}: {answer.status} {answer.read()!r}")

    # Windows that no other run wrote.
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=300) + datetime.timedelta(hours=time.time() % 1000)
    start, step = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        write(step)
        step += 1
    if way == "brim":
        post(admin + "/flush", b"")
    took = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(step * 1000, used.ru_utime + used.ru_stime, took)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
