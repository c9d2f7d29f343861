"""Sends readings from a small device to Brim: MicroPython 1.20 or newer, and Python 3.

Readings wait in memory while there is no network. A request and its Idempotency-Key
stay the same until it is answered, so its readings are accepted once.
"""

import json
import os
import socket
import time

try:
    from binascii import hexlify
except ImportError:
    from ubinascii import hexlify

# Some ports count from 2000.
_EPOCH = 946684800 if time.gmtime(0)[0] == 2000 else 0

_KEPT = 16384  # bytes of an answer


def now_ms():
    """Milliseconds since 1970. The clock must have been set."""
    return time.time_ns() // 1000000 + _EPOCH * 1000


class Sender:
    """Keeps readings of one sensor and sends them.

    host and port are the daemon's; tls is None, or an ssl.SSLContext. At most `keep`
    readings wait, then the oldest is dropped; one takes some 100 bytes.
    """

    def __init__(self, host, port, sensor, token=None, tls=None, keep=500, batch=50):
        self.host, self.port, self.sensor, self.token, self.tls = host, port, sensor, token, tls
        self.keep, self.batch = keep, batch
        self.waiting = []
        self.request = None  # (key, body, readings) in flight
        self.dropped = self.delivered = self.refused = 0
        self.failures = 0
        self.not_before = 0
        self._boot = hexlify(os.urandom(6)).decode()
        self._count = 0

    def add(self, fields, ms=None):
        """Keeps a reading: a dict of names and numbers."""
        if len(self.waiting) >= self.keep:
            self.waiting.pop(0)
            self.dropped += 1
        self.waiting.append(json.dumps({"sensorId": self.sensor, "ts": now_ms() if ms is None else ms, "fields": fields}))

    def poll(self):
        """Sends one request if one is due. True if a daemon accepted it."""
        if not self.request and not self.waiting or now_ms() < self.not_before:
            return False
        if not self.request:
            n = min(self.batch, len(self.waiting))
            self._count += 1
            key = "%s-%s-%d" % (self.sensor, self._boot, self._count)
            self.request = (key, "\n".join(self.waiting[:n]).encode(), n)
            self.waiting = self.waiting[n:]
        try:
            return self._judge(*self._post(*self.request[:2]))
        except (OSError, ValueError, KeyError, TypeError) as e:  # no answer, an incomplete one, or another server's
            self._later("no answer: %s" % e, 0)
            return False

    def _judge(self, status, headers, body):
        if status in (200, 202, 207) or status == 400 and b'"rejected"' in body:
            try:
                answer = json.loads(body)
            except ValueError:  # a long answer is cut off: the part before the list is complete
                answer = json.loads(body.partition(b',"errors":')[0] + b"}")
            accepted, rejected = answer["accepted"], answer["rejected"]
            for e in answer.get("errors", [])[:3]:
                print("refused:", e["code"], e["message"])
            self.delivered += accepted
            self.refused += rejected
        elif status == 413 and self.batch > 1:
            self.batch //= 2  # and send smaller requests, with new keys
            self.waiting = self.request[1].decode().split("\n") + self.waiting
        elif status in (400, 409, 413, 415):
            self.refused += self.request[2]
            print("refused:", status, body[:200])
        else:  # 408, 429, 5xx: later; 401, 403, 404: until the setup is fixed
            wait = headers.get("retry-after", "")
            self._later("%d %s" % (status, body[:200]), int(wait) if wait.isdigit() else 0)
            return False
        self.request = None
        self.failures = 0
        return True

    def _later(self, why, seconds):
        """Waits as long as the daemon asked, plus a random time that doubles up to a minute."""
        most = min(60000, 500 << min(self.failures, 7))
        jitter = int.from_bytes(os.urandom(2), "big") * most // 65536
        self.failures += 1
        self.not_before = now_ms() + min(seconds, 3600) * 1000 + jitter
        print("later:", why)

    def _post(self, key, body):
        s = socket.socket()
        try:
            s.settimeout(15)
            s.connect(socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)[0][-1])
            if self.tls:
                s = self.tls.wrap_socket(s, server_hostname=self.host)
            head = "POST /v1/readings HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\nIdempotency-Key: %s\r\nConnection: close\r\n" % (
                self.host, self.port, len(body), key)
            if self.token:
                head += "Authorization: Bearer %s\r\n" % self.token
            _send(s, head.encode() + b"\r\n" + body)
            return _receive(s)
        finally:
            s.close()


def _send(s, data):
    if hasattr(s, "sendall"):
        s.sendall(data)
    else:  # TLS sockets of MicroPython
        s.write(data)


def _receive(s):
    """Returns the status, the headers in lower case, and the body of an answer that ends with the connection.

    Of a long one it returns the beginning.
    """
    data = b""
    while len(data) < _KEPT:
        piece = s.recv(1024) if hasattr(s, "recv") else s.read(1024)
        if not piece:
            break
        data += piece
    head, found, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    words = lines[0].split(" ")
    if not found or len(words) < 2:
        raise ValueError("the answer is cut off")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if int(headers.get("content-length", len(body))) != len(body) and len(data) < _KEPT:
        raise ValueError("the answer is cut off")
    return int(words[1]), headers, body
