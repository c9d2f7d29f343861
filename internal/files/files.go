// Package files reads and writes readings as files: Parquet, CSV and NDJSON, and reads
// InfluxDB's line protocol.
//
//	reading ─▶ Columns.Add          reading ─▶ Writer ─▶ Parquet, CSV or NDJSON
//	              │                               ▲
//	              └────────── Columns ────────────┘
//
//	Parquet, CSV, NDJSON, line protocol ─▶ Read ─▶ Rows
//
// In Parquet and CSV, all rows have the same columns, which the writer needs to know before the
// first row: columns.go has the rules. The other files are named after their format; influx.go has
// the line protocol.
package files

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Format of files.
type Format string

// The formats. Line protocol is only read.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
	NDJSON  Format = "ndjson"
	Influx  Format = "influx"
)

// MediaType returns the media type of the format.
func (f Format) MediaType() string {
	switch f {
	case Parquet:
		return "application/vnd.apache.parquet"
	case CSV:
		return "text/csv"
	case NDJSON:
		return "application/x-ndjson"
	}
	return "text/plain"
}

// endings are the extensions of file names, without those for compression.
var endings = map[string]Format{
	".parquet": Parquet, ".csv": CSV, ".ndjson": NDJSON, ".jsonl": NDJSON,
	".lp": Influx, ".line": Influx, ".influx": Influx, ".txt": Influx,
}

// FormatOf returns the format of a file by the extension of its name, which may be followed by .gz
// or .zst.
func FormatOf(name string) (Format, bool) {
	name = strings.ToLower(name)
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	f, ok := endings[path.Ext(name)]
	return f, ok
}

// Endings returns the extensions that FormatOf knows.
func Endings() []string {
	return slices.Sorted(maps.Keys(endings))
}

// A Writer writes readings to a file. Close completes the file, but does not close the underlying
// io.Writer.
type Writer interface {
	Write(r *telemetry.Reading) error
	Close() error
}

// NewWriter returns a writer of files with these columns, which NDJSON does not need. All readings
// to be written must have been added to them. Memory grows with the number of columns only.
func NewWriter(f Format, w io.Writer, c *Columns) (Writer, error) {
	if f == NDJSON {
		return &ndjsonWriter{w: w}, nil
	}
	columns := c.List()
	if len(columns) > MaxColumns {
		return nil, fmt.Errorf("the readings have %d different fields and tags, and a file of %s at most %d; use NDJSON, which has no columns, or fewer sensors", len(columns), f, MaxColumns)
	}
	switch f {
	case Parquet:
		return newParquetWriter(w, columns), nil
	case CSV:
		return newCSVWriter(w, columns), nil
	}
	return nil, fmt.Errorf("format %q cannot be written", f)
}

// A Row is a row of a file: a reading, or an error.
type Row struct {
	Reading telemetry.Reading
	Line    int64 // where it begins, from 1; of Parquet, the row
	Err     error // this row cannot be read, but others can
}

// Options say how to read files that Brim has not written.
type Options struct {
	// Tags are columns of CSV and Parquet that are tags, not fields, in addition to
	// those that a file of Parquet names itself.
	Tags []string
	// SensorTag is the tag of line protocol whose value is the sensor id; empty: the
	// series key is, as it is over HTTP.
	SensorTag string
	// Precision is the unit of timestamps in line protocol: ns, us, ms or s; empty: ns.
	Precision string
}

// Rows yields the rows of a file. It ends with its first error. Readings and their slices may be
// retained.
type Rows = iter.Seq2[Row, error]

// Read returns the rows of a file. For Parquet, r must be an io.ReaderAt, and size the size of the
// file. Other formats may be compressed with gzip or zstd.
func Read(f Format, r io.Reader, size int64, o Options) Rows {
	if f == Parquet {
		at, ok := r.(io.ReaderAt)
		if !ok {
			return failed(errors.New("parquet needs a file, not a stream"))
		}
		return readParquet(at, size, o)
	}
	return func(yield func(Row, error) bool) {
		plain, err := decompress(r)
		if err != nil {
			yield(Row{}, err)
			return
		}
		defer plain.Close()
		var rows Rows
		switch f {
		case CSV:
			rows = readCSV(plain, o)
		case NDJSON:
			rows = readNDJSON(plain)
		case Influx:
			rows = readInflux(plain, o)
		default:
			rows = failed(fmt.Errorf("format %q cannot be read", f))
		}
		rows(yield)
	}
}

func failed(err error) Rows {
	return func(yield func(Row, error) bool) { yield(Row{}, err) }
}
