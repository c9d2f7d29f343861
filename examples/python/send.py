"""Sends readings to Brim with Python's standard library alone.

    BRIM_TOKEN=... python3 send.py http://127.0.0.1:8430

A request is retried with the same Idempotency-Key until it is answered, so its
readings are accepted once, however often it is sent.
"""

import gzip
import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

# Answers after which the same request may succeed. All others are final.
TRY_AGAIN = {408, 429, 502, 503, 504}


class Refused(Exception):
    """The daemon refuses the request, and would again."""


def send(url, readings, token=None, key=None, patience=120.0):
    """Sends a list of readings and returns the daemon's answer as a dict.

    A reading is {"sensorId": str, "ts": milliseconds, "fields": {...}}. Invalid ones
    are listed in the answer's "errors"; the others are accepted. Raises Refused, or
    TimeoutError after `patience` seconds: then it is unknown whether the readings were
    accepted, and only the same key makes it safe to send them again.
    """
    body = gzip.compress("\n".join(map(json.dumps, readings)).encode())
    headers = {
        "Content-Type": "application/x-ndjson",
        "Content-Encoding": "gzip",
        "Idempotency-Key": key or uuid.uuid4().hex,
    }
    if token:
        headers["Authorization"] = "Bearer " + token
    request = urllib.request.Request(url + "/v1/readings", data=body, headers=headers)
    deadline = time.monotonic() + patience
    pause = 0.1
    while True:
        wait, why = 0.0, ""
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as e:
            final = e.code not in TRY_AGAIN
            try:
                why = e.read().decode(errors="replace").strip()
            except (OSError, http.client.HTTPException) as half:
                why, final = f"{e.code}, {half}", False
            if final and e.code == 400 and '"rejected"' in why:
                return json.loads(why)  # every reading broke a rule
            if final:
                raise Refused(f"{e.code} {why}") from None
            if e.headers.get("Retry-After", "").isdigit():
                wait = float(e.headers["Retry-After"])
        except (OSError, http.client.HTTPException, ValueError) as e:  # no answer, or an incomplete one
            why = str(e)
        wait += random.uniform(0, pause)
        pause = min(2 * pause, 10.0)
        if time.monotonic() + wait > deadline:
            raise TimeoutError(f"no daemon accepted the readings: {why}")
        time.sleep(wait)


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8430"
    now = time.time_ns() // 1_000_000
    readings = [{"sensorId": f"python-{i % 10}", "ts": now + i, "fields": {"t": 20 + i / 10}} for i in range(1000)]
    key = uuid.uuid4().hex
    for _ in range(2):  # the second time, nothing new is accepted
        answer = send(url, readings, os.environ.get("BRIM_TOKEN"), key)
        print(answer["accepted"], "accepted,", answer["ack"])


if __name__ == "__main__":
    main()
