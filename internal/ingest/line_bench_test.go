package ingest

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// BenchmarkDecodeLineProtocol decodes a request in each operation: a line of
// each of 1,000 hosts, as they come when all report at the same time; 50 lines of
// each of 100, with a string or without; and a line of each of 1,000 that were
// never seen before.
func BenchmarkDecodeLineProtocol(b *testing.B) {
	for _, c := range []struct {
		name            string
		readings, hosts int
		first, text     bool
	}{
		{"hosts=1000", 1000, 1000, false, false},
		{"hosts=100", 5000, 100, false, false},
		{"hosts=first-seen", 1000, 1000, true, false},
		{"hosts=100,text", 5000, 100, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			content := lineProtocol(makeCPU(c.readings, c.hosts))
			if c.first {
				content = bytes.ReplaceAll(content, []byte("hostname=host_"), []byte("hostname=0000000"))
			}
			if c.text {
				content = bytes.ReplaceAll(content, []byte(" usage_user="), []byte(` state="idle",usage_user=`))
			}
			benchLines(b, &lineBench{content: content, readings: c.readings, first: c.first})
		})
	}
}

type lineBench struct {
	content  []byte
	readings int
	first    bool // each request is of hosts of its own
}

func benchLines(b *testing.B, c *lineBench) {
	d, _ := newTestServer(b)
	decode := func(i int) {
		if c.first {
			c.rename(i)
		}
		in := d.newIntake(d.streams["readings"], telemetry.Stored)
		if err := in.decodeLineProtocol(c.content, precision{name: "ns", ratio: -1_000_000}); err != nil || in.builder.Len() != c.readings {
			b.Fatal(in.builder.Len(), err, in.answer.Errors)
		}
		in.builder.Batch()
	}
	decode(0)
	b.SetBytes(int64(len(c.content)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i := 0
	for b.Loop() {
		i++
		decode(i)
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	readings := float64(b.N) * float64(c.readings)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/readings, "ns/reading")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/readings, "B/reading")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/readings, "allocs/reading")
}

// rename gives all hosts names that no request before had.
func (c *lineBench) rename(request int) {
	const name = "hostname="
	number := fmt.Sprintf("%07d", request)
	for rest := c.content; ; {
		at := bytes.Index(rest, []byte(name))
		if at < 0 {
			return
		}
		rest = rest[at+len(name):]
		copy(rest, number)
	}
}
