#!/usr/bin/env python3
"""Read the blocks of bucket documents, as docs/storage.md describes them under "Blocks".

    python3 blocks.py mongodb://127.0.0.1:27017 DATABASE STREAM SENSOR   # needs pymongo
    python3 blocks.py FILE...                     # each file is one block, as it is stored

prints one reading per line, as JSON. In a program:

    for reading in readings(block):
        print(reading.time, reading.fields, reading.tags)

decode the readings of one block, which is a bytes object. Columns that are compressed need
the package zstandard.
"""

import json
import struct
import sys
from collections import namedtuple
from datetime import datetime, timedelta, timezone

# time: milliseconds since the epoch. fields: {name: value} in the order of the reading.
# tags: {name: value} if the reading has tags of its own, None if it has those of its
# document. key: (arrival, session, sequence), None if the block has no keys.
Reading = namedtuple("Reading", "time fields tags key")

STATISTICS, SHAPES, TAGS, KEYS, TOGETHER = 1, 2, 4, 8, 16  # flags
FLOAT, INT, BOOL, TEXT, NUMBER, MIXED = 1, 2, 3, 4, 5, 6  # kinds of columns
COMPRESSED = 0x80
MASK = (1 << 64) - 1


def signed(value):
    """Returns an integer that may have overflowed 64 bits as a signed 64-bit integer."""
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def crc32c(data):
    table = crc32c.__dict__.setdefault("table", [])
    if not table:
        for n in range(256):
            for _ in range(8):
                n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
            table.append(n)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Reader:
    """Takes numbers and bytes off the front of some bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError("a block is too short")
        self.at += n
        return self.data[self.at - n : self.at]

    def byte(self):
        return self.take(1)[0]

    def uvarint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def varint(self):  # zigzag
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def text(self):
        return self.take(self.uvarint()).decode()

    def integers(self, n):
        """Reads a stream of n integers."""
        head = self.byte()
        if not head & 8:
            return self.stream(head, n)
        offset, factor = self.varint(), self.uvarint()
        return [signed(offset + factor * v) for v in self.stream(head, n)]

    def stream(self, head, n):
        order, constant = head & 3, head & 4
        values = []
        if order >= 1:
            values.append(self.varint())
        step = self.varint() if order == 2 else 0
        if order == 2:
            values.append(signed(values[0] + step))
        differences = []
        if n > order:
            differences = [self.varint()] * (n - order) if constant else self.runs(n - order)
        if order == 0:
            return [signed(d) for d in differences]
        last = values[-1]
        for d in differences:
            if order == 2:
                d = step = signed(step + d)
            last = signed(last + d)
            values.append(last)
        return values

    def runs(self, n):
        """Reads packed integers, in runs of up to 128."""
        values, base = [], 0
        while len(values) < n:
            length = min(128, n - len(values))
            base += self.varint()
            head = self.byte()
            width = head & 0x7F
            exceptions = self.byte() if head & 0x80 else 0
            packed = int.from_bytes(self.take((length * width + 7) // 8), "little")
            run = [base + (packed >> i * width & (1 << width) - 1) for i in range(length)]
            for place in self.take(exceptions):
                run[place] += self.varint() << width
            values += run
        return values

    def doubles(self, n, whole=False):
        """Reads a stream of n doubles. If whole, decimals that are whole are integers."""
        head = self.byte()
        if head == 0x1F:
            shift = self.byte()
            bits = [(v & MASK) >> 1 << shift | (v & 1) << 63 for v in self.integers(n)]
            return [struct.unpack("<d", struct.pack("<Q", b))[0] for b in bits]
        odd = {}
        if head & 0x20:
            places, place = [], 0
            for _ in range(self.uvarint()):
                place += self.uvarint()
                places.append(place)
            odd = {place: struct.unpack("<d", self.take(8))[0] for place in places}
        exponent = head & 0x1F
        values = []
        for v in self.integers(n):
            quotient, rest = divmod(v, 10**exponent)
            values.append(quotient if whole and rest == 0 else float(v) / 10.0**exponent)
        for place, value in odd.items():
            values[place] = value
        return values

    def values(self, kind, n):
        """Reads the n values of a column."""
        if kind == FLOAT:
            return self.doubles(n)
        if kind == INT:
            return self.integers(n)
        if kind == BOOL:
            return [v == 1 for v in self.integers(n)]
        if kind == TEXT:
            strings = [self.text() for _ in range(self.uvarint())]
            return [strings[i] for i in self.integers(n)]
        if kind == NUMBER:
            return self.doubles(n, whole=True)
        if kind == MIXED:
            kinds = self.integers(n)
            parts = {k: iter(self.values(k, kinds.count(k))) for k in (FLOAT, INT, BOOL, TEXT) if k in kinds}
            return [next(parts[k]) for k in kinds]
        raise ValueError(f"a block has a column of the unknown kind {kind}")

    def shapes(self, columns):
        """Reads the lists of columns that readings have."""
        shapes = []
        for _ in range(self.uvarint()):
            head = self.uvarint()
            if head == 0:
                shapes.append(range(columns))
            elif head == 1:
                bits = int.from_bytes(self.take((columns + 7) // 8), "little")
                shapes.append([i for i in range(columns) if bits >> i & 1])
            else:
                shapes.append([self.uvarint() for _ in range(head - 2)])
        return shapes


def section(data, kind):
    """Returns a reader of a section, decompressed if it must be."""
    if kind & COMPRESSED:
        try:
            import zstandard
        except ImportError:
            raise RuntimeError("the block is compressed with zstd: install the Python package zstandard to read it") from None

        reader = Reader(data)
        size = reader.uvarint()
        data = zstandard.ZstdDecompressor().decompress(data[reader.at :], max_output_size=size)
    return Reader(data)


def readings(block):
    """Yields the readings of a block."""
    block = bytes(block)
    if block[0] != 1:
        raise ValueError(f"a block has version {block[0]}; this program reads version 1")
    if struct.unpack("<I", block[-4:])[0] != crc32c(block[:-4]):
        raise ValueError("a block is damaged: its checksum is wrong")
    header = Reader(block[:-4])
    header.take(1)
    flags, count, columns = header.byte(), header.uvarint(), header.uvarint()
    entries = {}  # name or flag: kind, size
    for flag in (0, SHAPES, TAGS, KEYS):  # 0: the times
        if flag == 0 or flags & flag:
            entries[flag] = header.byte(), header.uvarint()
    names = []
    for _ in range(columns):
        name = header.take(header.byte()).decode()
        names.append(name)
        entries[name] = header.byte(), header.uvarint()
    if flags & STATISTICS:
        header.take(header.uvarint())
    if flags & TOGETHER:
        header = section(header.data[header.at :], COMPRESSED)
    sections = {of: section(header.take(size), kind) for of, (kind, size) in entries.items()}

    times = sections[0].integers(count)
    shapes, numbers = [range(columns)], [0] * count
    if flags & SHAPES:
        shapes = sections[SHAPES].shapes(columns)
        numbers = sections[SHAPES].integers(count)
    sets, own = [], [0] * count
    if flags & TAGS:
        r = sections[TAGS]
        sets = [{r.text(): r.text() for _ in range(r.uvarint())} for _ in range(r.uvarint())]
        own = r.integers(count)
    keys = [None] * count
    if flags & KEYS:
        r = sections[KEYS]
        sessions = [r.text() for _ in range(r.uvarint())]
        arrivals, of, sequences = r.integers(count), r.integers(count), r.integers(count)
        keys = [(arrivals[i], sessions[of[i]], sequences[i] & MASK) for i in range(count)]
    values = []
    for i, name in enumerate(names):
        n = sum(i in shapes[s] for s in numbers)
        values.append(iter(sections[name].values(entries[name][0] & ~COMPRESSED, n)))

    for i in range(count):
        fields = {names[c]: next(values[c]) for c in shapes[numbers[i]]}
        yield Reading(times[i], fields, sets[own[i] - 1] if own[i] else None, keys[i])


def show(reading, tags):
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=reading.time)
    out = {"ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "fields": reading.fields}
    tags = tags if reading.tags is None else reading.tags
    if tags:
        out["tags"] = tags
    print(json.dumps(out, ensure_ascii=False))


def main(arguments):
    if len(arguments) == 4 and arguments[0].startswith("mongodb"):
        import pymongo

        uri, database, stream, sensor = arguments
        # In the order of the index: {s, b, g, p}.
        of = {"_id": {"$gte": {"s": sensor}, "$lt": {"s": sensor + "\0"}}, "blocks": {"$exists": True}}
        for document in pymongo.MongoClient(uri)[database][stream].find(of).sort("_id"):
            for block in document["blocks"]:
                for reading in readings(block):
                    show(reading, document.get("tags"))
        return
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    for name in arguments:
        with open(name, "rb") as file:
            for reading in readings(file.read()):
                show(reading, None)


if __name__ == "__main__":
    main(sys.argv[1:])
