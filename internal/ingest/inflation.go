package ingest

// An inflation bounds what comes out of a decompressor, by itself and by what has
// gone in until then: so a bomb is known by its first MiB, whatever its length.
// Who pads it to what the ratio asks for sends what an honest body may be.
type inflation struct {
	free  int64 // what anything may become
	ratio int64 // what each byte may become, beyond that
	most  int64 // what anything may become at most
	out   int64 // has come out
}

// limit returns what may come out of in bytes.
func (i *inflation) limit(in int64) int64 { return min(i.most, max(i.free, i.ratio*in)) }

// add counts n bytes that came out, when in had gone in, and reports whether
// that many may.
func (i *inflation) add(n int, in int64) bool {
	i.out += int64(n)
	return i.out <= i.limit(in)
}
