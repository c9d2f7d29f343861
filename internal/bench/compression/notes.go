package compression

import (
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
)

// notes say what follows from the figures.
func (t *trial) notes() {
	d, r := &t.data, t.result
	if d.Sizes != nil {
		d.noteSizes(r)
	}
	if d.Reads != nil {
		d.noteReads(r)
	}
	if d.Writes != nil {
		d.noteWrites(r)
	}
}

func (d *Data) noteSizes(r *bench.Result) {
	ratio := func(at int, values Values) string {
		return bench.Times.Format(float64(d.size(at, zstd, values).Size.Data()) / float64(d.size(at, snappy, values).Size.Data()))
	}
	var walk, random []string
	for at, s := range shapes() {
		walk, random = append(walk, s.String()+" "+ratio(at, Walk)), append(random, s.String()+" "+ratio(at, Random))
	}
	r.Note("zstd leaves of what snappy leaves, random walk: %s; random doubles: %s.", strings.Join(walk, ", "), strings.Join(random, ", "))

	all := func(at, by int) float64 {
		size := &d.size(at, by, Walk).Size
		return size.PerReading(size.Data() + size.Index())
	}
	document, bucket := all(documents, zstd), all(buckets1h, snappy)
	order := "The shape matters before the compressor"
	if bucket >= document {
		order = "The compressor matters as much as the shape"
	}
	r.Note("%s: with its indexes a reading takes %s as a document with zstd, %s in an hourly bucket with snappy.", order, bench.Bytes.Format(document), bench.Bytes.Format(bucket))
	best, bytes := "", 0.0
	for at, s := range shapes() {
		for by, c := range compressors() {
			if of := all(at, by); bytes == 0 || of < bytes {
				best, bytes = s.String()+" with "+string(c), of
			}
		}
	}
	r.Note("The smallest of all is %s: %s a reading, indexes included.", best, bench.Bytes.Format(bytes))
}

func (d *Data) noteReads(r *bench.Result) {
	from := d.read(documents, none)
	if from.ColdP50 == nil {
		return
	}
	to := d.read(documents, zstd)
	r.Note("A cold read of a document per reading brings %s from the files without a compressor and %s with zstd; it takes %s and %s.",
		bench.Bytes.Format(from.ColdBytes.Median()), bench.Bytes.Format(to.ColdBytes.Median()),
		bench.Seconds.Format(from.ColdP50.Median()), bench.Seconds.Format(to.ColdP50.Median()))
}

func (d *Data) noteWrites(r *bench.Result) {
	a, b := &d.Checkpoints[snappy], &d.Checkpoints[zstd]
	n := float64(a.Readings)
	r.Note("A checkpoint uses %s of processor time for each reading with snappy and %s with zstd (a document per reading): at 10,000 readings a second %s and %s of a core.",
		bench.Seconds.Format(a.CPU.Median()/n), bench.Seconds.Format(b.CPU.Median()/n),
		bench.Share.Format(a.CPU.Median()/n*10_000), bench.Share.Format(b.CPU.Median()/n*10_000))
	from, to := d.write(buckets5m, snappy), d.write(buckets5m, zstd)
	r.Note("At a fixed rate into 5-minute buckets mongod uses %s a reading with snappy and %s with zstd in all; the journal takes %s and %s.",
		bench.Seconds.Format(from.CPU.Median()), bench.Seconds.Format(to.CPU.Median()),
		bench.Bytes.Format(from.Journal.Median()), bench.Bytes.Format(to.Journal.Median()))
}
