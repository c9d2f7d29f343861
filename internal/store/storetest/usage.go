package storetest

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Usage adds up what writing readings takes, here and in mongod.
type Usage struct {
	readings             int
	wall, client, mongod time.Duration
	allocs, bytes        uint64
}

// Measure adds what work takes that writes so many readings. CPU is known to 10
// ms, so a benchmark must go on for seconds.
func (u *Usage) Measure(b *testing.B, mongodPid, readings int, work func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client, mongod, began := cpu(b, os.Getpid()), cpu(b, mongodPid), time.Now()
	work()
	u.wall += time.Since(began)
	u.client += cpu(b, os.Getpid()) - client
	u.mongod += cpu(b, mongodPid) - mongod
	runtime.ReadMemStats(&after)
	u.allocs += after.Mallocs - before.Mallocs
	u.bytes += after.TotalAlloc - before.TotalAlloc
	u.readings += readings
}

// Report gives the benchmark's results for one reading; prefix tells sides of a
// comparison apart.
func (u *Usage) Report(b *testing.B, prefix string) {
	b.Helper()
	n := float64(u.readings)
	b.ReportMetric(0, "ns/op") // of no meaning here
	b.ReportMetric(u.Rate(), prefix+"readings/s")
	b.ReportMetric(float64(u.client)/n, prefix+"client-ns/reading")
	b.ReportMetric(float64(u.mongod)/n, prefix+"mongod-ns/reading")
	b.ReportMetric(float64(u.allocs)/n, prefix+"allocs/reading")
	b.ReportMetric(float64(u.bytes)/n, prefix+"B/reading")
}

// Rate is in readings a second.
func (u *Usage) Rate() float64 { return float64(u.readings) / u.wall.Seconds() }

func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	proc, err := procfs.NewProc(pid)
	require.NoError(b, err)
	stat, err := proc.Stat()
	require.NoError(b, err)
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// Integers makes readings of integer fields, the sensors in turns and ten
// seconds from one reading of a sensor to the next. The first is the number of
// a sensor's first reading.
func Integers(b *testing.B, first, sensors, perSensor, fields int) *batch.Batch {
	b.Helper()
	builder := batch.NewBuilder(Base)
	names := make([][]byte, fields)
	for f := range names {
		names[f] = fmt.Appendf(nil, "usage_field_%d", f)
	}
	for i := range sensors * perSensor {
		builder.Begin(Stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		builder.Sensor(fmt.Appendf(nil, "cpu,hostname=host_%d", i%sensors))
		builder.Tag([]byte("region"), []byte("eu-west-1"))
		builder.Time(Base.Add(time.Duration(first+i/sensors) * 10 * time.Second).UnixMilli())
		for f, name := range names {
			builder.Int(name, int64((i+f)%100))
		}
		if r := builder.End(); r != nil {
			b.Fatal(r)
		}
	}
	out := builder.Batch()
	out.Session, out.FirstSeq = "sbench", uint64(1+first*sensors)
	return out
}
