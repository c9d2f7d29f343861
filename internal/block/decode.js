// Decodes blocks, see "Blocks" in docs/storage.md: the readings of each, in their order, as
// {ts: Date, FIELD: VALUE, …}, with sensor: {tags: {…}} where a reading has tags of its own.
//
// blocks are arrays of bytes, or values with a method base64, as MongoDB's BinData has.
// long makes a 64-bit integer of its decimal digits. JavaScript has no zstd: fields that are
// compressed are left out, and the reading has unread: [FIELD, …]; in place of readings whose
// times are compressed, there is one {unread: NUMBER OF READINGS}.
function decodeBlocks(blocks, long) {
  const powers = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22];
  const FLOAT = 1, INT = 2, BOOL = 3, TEXT = 4, NUMBER = 5, ZSTD = 0x80;
  const zero = BigInt(0), one = BigInt(1), seven = BigInt(7), eight = BigInt(8);
  const unsigned = v => BigInt.asUintN(64, v), signed = v => BigInt.asIntN(64, v);
  const view = new DataView(new ArrayBuffer(8));
  const double = bits => {
    view.setUint32(0, Number(bits >> BigInt(32)));
    view.setUint32(4, Number(bits & BigInt(0xffffffff)));
    return view.getFloat64(0);
  };

  function bytesOf(block) {
    if (typeof block.base64 !== "function") return block;
    const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const text = block.base64(), out = [];
    let bits = 0, filled = 0;
    for (let i = 0; i < text.length && text[i] !== "="; i++) {
      bits = (bits << 6 | digits.indexOf(text[i])) & 0xffff;
      if ((filled += 6) >= 8) out.push(bits >> (filled -= 8) & 0xff);
    }
    return out;
  }

  function textOf(bytes) { // UTF-8
    let out = "";
    for (let i = 0; i < bytes.length;) {
      const c = bytes[i++];
      if (c < 0x80) out += String.fromCharCode(c);
      else if (c < 0xe0) out += String.fromCharCode((c & 0x1f) << 6 | bytes[i++] & 0x3f);
      else if (c < 0xf0) out += String.fromCharCode((c & 0xf) << 12 | (bytes[i++] & 0x3f) << 6 | bytes[i++] & 0x3f);
      else out += String.fromCodePoint((c & 7) << 18 | (bytes[i++] & 0x3f) << 12 | (bytes[i++] & 0x3f) << 6 | bytes[i++] & 0x3f);
    }
    return out;
  }

  function reader(bytes) {
    let at = 0;
    const r = {
      byte: () => {
        if (at >= bytes.length) throw new Error("a block is too short");
        return bytes[at++];
      },
      take: n => bytes.slice(at, at += n),
      big: () => { // unsigned
        let v = zero, shift = zero, c;
        do {
          c = r.byte();
          v |= BigInt(c & 0x7f) << shift;
          shift += seven;
        } while (c & 0x80);
        return v;
      },
      number: () => Number(r.big()),
      zigzag: () => { const v = r.big(); return v & one ? -(v >> one) - one : v >> one; },
      text: () => textOf(r.take(r.number())),
    };
    return r;
  }

  function run(r, n, base) {
    const head = r.byte(), width = head & 0x7f;
    const exceptions = head & 0x80 ? r.byte() : 0;
    const packed = r.take((n * width + 7) >> 3), out = [];
    let word = zero, filled = 0, next = 0;
    const bits = BigInt(width), mask = (one << bits) - one;
    for (let i = 0; i < n; i++) {
      for (; filled < width; filled += 8) word |= BigInt(packed[next++]) << BigInt(filled);
      out.push(base + (word & mask));
      word >>= bits;
      filled -= width;
    }
    const places = r.take(exceptions);
    for (let i = 0; i < exceptions; i++) out[places[i]] += r.zigzag() << bits;
    return out;
  }

  function integers(r, n) {
    const head = r.byte();
    if (!(head & 8)) return stream(r, head, n);
    const offset = r.zigzag(), factor = r.big();
    return stream(r, head, n).map(v => signed(offset + factor * v));
  }

  function stream(r, head, n) {
    const order = head & 3, out = [];
    let last = zero, step = zero, base = zero;
    if (order >= 1) out.push(last = r.zigzag());
    if (order === 2) {
      step = r.zigzag();
      out.push(last = signed(last + step));
    }
    let same = head & 4 && n > order ? r.zigzag() : zero;
    while (out.length < n) {
      const size = Math.min(128, n - out.length);
      if (!(head & 4)) base = unsigned(base + r.zigzag());
      const differences = head & 4 ? null : run(r, size, base);
      for (let i = 0; i < size; i++) {
        const d = differences ? differences[i] : same;
        if (order === 2) step = signed(step + d);
        last = order === 0 ? d : order === 1 ? last + d : last + step;
        out.push(last = signed(last));
      }
    }
    return out;
  }

  function decimals(r, n, whole) {
    const head = r.byte();
    if (head === 0x1f) {
      const shift = BigInt(r.byte());
      return integers(r, n).map(v => unsigned(v)).map(v => double(v >> one << shift | (v & one) << BigInt(63)));
    }
    const places = [], odd = [];
    if (head & 0x20) {
      const count = r.number();
      for (let i = 0, at = 0; i < count; i++) places.push(at += r.number());
      for (let i = 0; i < count; i++) odd.push(double(r.take(8).reverse().reduce((v, c) => v << eight | BigInt(c), zero)));
    }
    const power = powers[head & 0x1f], divisor = BigInt(power);
    const out = integers(r, n).map(v => whole && v % divisor === zero ? long((v / divisor).toString()) : Number(v) / power);
    places.forEach((at, i) => out[at] = odd[i]);
    return out;
  }

  function strings(r, n) {
    const list = [];
    for (let count = r.number(); count > 0; count--) list.push(r.text());
    return integers(r, n).map(v => list[Number(v)]);
  }

  function values(r, kind, n) {
    switch (kind) {
      case FLOAT: return decimals(r, n, false);
      case NUMBER: return decimals(r, n, true);
      case INT: return integers(r, n).map(v => long(v.toString()));
      case BOOL: return integers(r, n).map(v => v === one);
      case TEXT: return strings(r, n);
    }
    const kinds = integers(r, n).map(Number), parts = {}; // mixed
    for (const k of [FLOAT, INT, BOOL, TEXT]) {
      const count = kinds.filter(of => of === k).length;
      if (count > 0) parts[k] = values(r, k, count);
    }
    return kinds.map(k => parts[k].shift());
  }

  function shapesOf(r, columns) {
    const list = [];
    for (let count = r.number(); count > 0; count--) {
      const head = r.number();
      if (head === 0) list.push(columns.map((_, i) => i));
      else if (head === 1) {
        const bits = r.take((columns.length + 7) >> 3);
        list.push(columns.map((_, i) => i).filter(i => bits[i >> 3] >> (i & 7) & 1));
      } else list.push(Array.from({length: head - 2}, r.number));
    }
    return list;
  }

  function tagsOf(r) {
    const sets = [];
    for (let count = r.number(); count > 0; count--) {
      const tags = Object.create(null), size = r.number(); // it takes the name __proto__
      for (let i = 0; i < size; i++) {
        const name = r.text();
        tags[name] = r.text();
      }
      sets.push(size ? {tags: tags} : {});
    }
    return sets;
  }

  function decode(block) {
    const r = reader(bytesOf(block));
    const version = r.byte(), flags = r.byte(), n = r.number(), count = r.number();
    if (version !== 1) throw new Error("a block has version " + version);
    const section = () => ({kind: r.byte(), size: r.number()});
    const rows = [section()];
    for (const flag of [2, 4, 8]) rows.push(flags & flag ? section() : null);
    const columns = [];
    for (let i = 0; i < count; i++) {
      const name = textOf(r.take(r.byte()));
      columns.push(Object.assign({name: name}, section()));
    }
    if (flags & 16 || rows[0].kind & ZSTD) return [{unread: n}];
    if (flags & 1) r.take(r.number());
    const [times, shapes, tags] = rows.map(s => s && reader(r.take(s.size)));
    const at = integers(times, n).map(Number);
    const lists = shapes ? shapesOf(shapes, columns) : [columns.map((_, i) => i)];
    const forms = shapes ? integers(shapes, n).map(Number) : at.map(() => 0);
    const sets = tags ? tagsOf(tags) : [];
    const own = tags ? integers(tags, n).map(Number) : at.map(() => 0);
    columns.forEach((c, i) => {
      const data = reader(r.take(c.size));
      const has = lists.map(list => list.indexOf(i) >= 0);
      c.next = 0;
      if (!(c.kind & ZSTD)) c.values = values(data, c.kind, forms.filter(form => has[form]).length);
    });
    return at.map((ms, i) => {
      const reading = Object.assign(Object.create(null), {ts: new Date(ms)});
      for (const of of lists[forms[i]]) {
        const c = columns[of];
        if (c.values) reading[c.name] = c.values[c.next++];
        else reading.unread = (reading.unread || []).concat(c.name);
      }
      if (own[i] > 0) reading.sensor = sets[own[i] - 1];
      return reading;
    });
  }

  return [].concat(...blocks.map(decode));
}
