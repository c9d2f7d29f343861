package block_test

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

var dataSets = []struct {
	name   string
	window time.Duration
}{{"weather", 24 * time.Hour}, {"ecg", time.Hour}, {"cpu", time.Hour}, {"four", 24 * time.Hour}}

// A window holds the readings of a sensor that belong into one document.
type window struct {
	readings []telemetry.Reading
	refs     []batch.Ref
}

// windowsOf reads a data set.
func windowsOf(t testing.TB, name string, length time.Duration) (windows []*window) {
	t.Helper()
	folder := os.Getenv("BLOCK_DATA")
	if folder == "" {
		folder = "testdata"
	}
	content, err := os.ReadFile(filepath.Join(folder, name+".csv"))
	require.NoError(t, err)
	lines, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	require.NoError(t, err)
	type key struct {
		sensor string
		start  int64
	}
	known := make(map[key]*window)
	for _, line := range lines[1:] {
		r := readingOf(t, lines[0], line)
		k := key{r.Sensor, r.Time.UnixMilli() / length.Milliseconds()}
		if known[k] == nil {
			known[k] = &window{}
			windows = append(windows, known[k])
		}
		known[k].readings = append(known[k].readings, r)
	}
	for _, w := range windows {
		w.refs = refsOf(t, w.readings)
	}
	return windows
}

func readingOf(t testing.TB, names, line []string) telemetry.Reading {
	at, err := strconv.ParseInt(line[1], 10, 64)
	require.NoError(t, err)
	r := telemetry.Reading{Sensor: line[0], Time: time.UnixMilli(at).UTC()}
	for i, text := range line[2:] {
		if text == "" {
			continue
		}
		f := telemetry.Field{Name: names[i+2]}
		if strings.Contains(text, ".") {
			v, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			f.Value = telemetry.FloatValue(v)
		} else {
			v, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			f.Value = telemetry.IntValue(v)
		}
		r.Fields = append(r.Fields, f)
	}
	return r
}

// refsOf returns readings as the rows of a batch.
func refsOf(t testing.TB, readings []telemetry.Reading) (refs []batch.Ref) {
	b := batch.NewBuilder(time.UnixMilli(0))
	for i, r := range readings {
		b.Begin("readings", i, telemetry.TimeRange{Newest: 1 << 50})
		b.Sensor([]byte(r.Sensor))
		b.Time(r.Time.UnixMilli())
		for _, f := range r.Fields {
			b.Add(f)
		}
		require.Nil(t, b.End())
	}
	made := b.Batch()
	for i := range readings {
		refs = append(refs, batch.Ref{Batch: made, Index: uint32(i)})
	}
	return refs
}

func TestSamplesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, set := range dataSets {
		var b block.Builder
		for _, w := range windowsOf(t, set.name, set.window) {
			for _, o := range variants {
				b.Reset()
				for _, r := range w.refs {
					b.Add(r)
				}
				data, err := b.Append(nil, o)
				require.NoError(t, err)
				opened, err := block.Open(data)
				require.NoError(t, err)
				i := 0
				for r, err := range opened.Readings(w.readings[0].Sensor, nil, nil) {
					require.NoError(t, err)
					if !assert.ObjectsAreEqual(w.readings[i], r) { // cheaper than assert.Equal
						require.Equal(t, w.readings[i], r, set.name)
					}
					i++
				}
				require.Equal(t, len(w.readings), i)
			}
		}
	}
}

// bsonSize returns the bytes of the readings as sub-documents of a bucket document.
func bsonSize(w *window) (n int) {
	for i, r := range w.refs {
		at, dst := bsoncore.AppendDocumentElementStart(nil, strconv.Itoa(i))
		dst = bsoncore.AppendDateTimeElement(dst, store.TimeKey, r.Row().Time)
		dst, _ = bsoncore.AppendDocumentEnd(store.AppendFields(dst, r.Batch, r.Row()), at)
		n += len(dst)
	}
	return n
}

// cpu returns the CPU time that this process has used, in seconds.
func cpu(b *testing.B) float64 {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func BenchmarkEncode(b *testing.B) {
	for _, set := range dataSets {
		windows := windowsOf(b, set.name, set.window)
		for name, run := range map[string]struct {
			most int // readings in a block
			o    block.Options
		}{"sealed": {1 << 20, block.Options{Statistics: true}}, "open60": {60, block.Options{}}, "zstd": {1 << 20, block.Options{Statistics: true, Compress: true}}} {
			b.Run(set.name+"/"+name, func(b *testing.B) {
				var builder block.Builder
				var data []byte
				var err error
				values, readings, size, plain := 0, 0, 0, 0
				before := cpu(b)
				for b.Loop() {
					values, readings, size = 0, 0, 0
					for _, w := range windows {
						for rest := w.refs; len(rest) > 0; {
							n := min(run.most, len(rest))
							builder.Reset()
							for _, r := range rest[:n] {
								builder.Add(r)
								values += 1 + len(r.Batch.Shape(r.Row()).Fields)
							}
							rest = rest[n:]
							if data, err = builder.Append(data[:0], run.o); err != nil {
								b.Fatal(err)
							}
							size += len(data)
							readings += n
						}
					}
				}
				for _, w := range windows {
					plain += bsonSize(w)
				}
				b.ReportMetric(float64(values)*float64(b.N)/1e6/(cpu(b)-before), "Mvalues/s")
				b.ReportMetric(float64(size)/float64(readings), "bytes/reading")
				b.ReportMetric(float64(plain)/float64(readings), "BSON-bytes/reading")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, set := range dataSets {
		for name, o := range map[string]block.Options{"sealed": {Statistics: true}, "zstd": {Compress: true}} {
			var blocks [][]byte
			var builder block.Builder
			for _, w := range windowsOf(b, set.name, set.window) {
				builder.Reset()
				for _, r := range w.refs {
					builder.Add(r)
				}
				data, err := builder.Append(nil, o)
				require.NoError(b, err)
				blocks = append(blocks, data)
			}
			b.Run(set.name+"/"+name, func(b *testing.B) {
				var decoder block.Decoder
				values := 0
				before := cpu(b)
				for b.Loop() {
					values = 0
					for _, data := range blocks {
						opened, err := block.Open(data)
						if err != nil {
							b.Fatal(err)
						}
						n, err := decoder.Unpack(opened)
						if err != nil {
							b.Fatal(err)
						}
						values += n
					}
				}
				b.ReportMetric(float64(values)*float64(b.N)/1e6/(cpu(b)-before), "Mvalues/s")
			})
		}
	}
}
