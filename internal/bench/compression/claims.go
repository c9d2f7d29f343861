package compression

import (
	"github.com/brim-telemetry/brim/internal/bench"
)

// Why this machine shows something else.
const (
	becauseDocuments = "how much snappy finds hangs on what repeats within a page: here it is the names of the fields, the sensor's, and the first bytes of the numbers"
	becauseZstd      = "how much zstd finds beyond snappy hangs on the values: rounded numbers pack well, random ones do not"
	becauseCold      = "with a disk that answers this fast, unpacking and decoding weigh as much as the bytes that need not be read"
	becauseWrites    = "a write is acknowledged when it is in the journal; pages are compressed behind its back, when a checkpoint or an eviction writes them"
	becauseCPU       = "a checkpoint also makes and writes pages, which costs the same with every compressor"
)

const (
	// alikeCPU is wide: the published figure is a share of all that the server did.
	alikeCPU = 2
	// alikeBytes is narrow: bytes hardly hang on a machine.
	alikeBytes = 1.3
)

func (t *trial) claims() {
	d, r := &t.data, t.result
	if d.Sizes != nil {
		r.Add(d.sizeClaims()...)
	}
	if d.Reads != nil {
		r.Add(d.readClaims()...)
		r.LeaveOut("p99 of cold reads (published 8.0 → 6.5 ms)", "it needs thousands of reads, each of pages that no other touched")
	}
	if d.Writes != nil {
		from, to := d.write(buckets5m, snappy), d.write(buckets5m, zstd)
		r.Add(
			bench.Claim{Says: "zstd makes writes a little slower, p50", Published: 1.17, PublishedAs: "3 → 3.5 ms", Because: becauseWrites}.
				Paired(from.P50, to.P50, bench.Seconds),
			bench.Claim{Says: "zstd makes writes a little slower, p99", Published: 1.2, PublishedAs: "15 → 18 ms", Because: becauseWrites}.
				Paired(from.P99, to.P99, bench.Seconds),
			bench.Claim{
				Says: "zstd makes checkpoints use more processor time", Published: 1.5, PublishedAs: "12 → 18 %", Because: becauseCPU,
				Alike: alikeCPU,
			}.Paired(d.Checkpoints[snappy].CPU, d.Checkpoints[zstd].CPU, bench.Seconds),
		)
	}
}

// bytes is one size as a sample.
func (d *Data) bytes(at, by int) bench.Samples {
	return bench.Samples{float64(d.size(at, by, Walk).Size.Data())}
}

func (d *Data) index(by int) bench.Samples {
	return bench.Samples{float64(d.size(documents, by, Walk).Size.Index())}
}

func (d *Data) sizeClaims() []bench.Row {
	return []bench.Row{
		bench.Claim{Says: "snappy makes documents smaller", Published: 0.4, PublishedAs: "3.4 → 1.36 GB", Because: becauseDocuments, Alike: alikeBytes}.
			Compare(d.bytes(documents, none), d.bytes(documents, snappy), bench.Bytes),
		bench.Claim{Says: "zstd makes them half of what snappy does", Published: 0.5, PublishedAs: "1.36 → 0.68 GB", Because: becauseZstd, Alike: alikeBytes}.
			Compare(d.bytes(documents, snappy), d.bytes(documents, zstd), bench.Bytes),
		bench.Claim{Says: "indexes stay as they are", PublishedAs: "480 MB each"}.
			Same(d.index(none), d.index(zstd), bench.Bytes),
		bench.Claim{Says: "a collection that moves from snappy to zstd shrinks (hourly buckets)", Published: 0.4, PublishedAs: "68 → 27 GB", Because: becauseZstd, Alike: alikeBytes}.
			Compare(d.bytes(buckets1h, snappy), d.bytes(buckets1h, zstd), bench.Bytes),
	}
}

func (d *Data) readClaims() []bench.Row {
	from, to := d.read(documents, none), d.read(documents, zstd)
	rows := []bench.Row{
		bench.Claim{Says: "warm reads do not care for the compressor", PublishedAs: "280 → 295 µs"}.SamePaired(from.WarmP50, to.WarmP50, bench.Seconds),
	}
	if from.ColdP50 == nil {
		return rows
	}
	return append(rows,
		bench.Claim{Says: "cold reads gain a little from zstd, p50", Published: 0.83, PublishedAs: "1.2 → 1.0 ms", Because: becauseCold}.
			Paired(from.ColdP50, to.ColdP50, bench.Seconds))
}
