package client

import (
	"fmt"
	"testing"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An operation is a Write of 1,000 readings of four fields, with the answer from an
// ingest server whose journal discards everything. That server's time and
// allocations are included; see BenchmarkEncode of package wire.
func BenchmarkWrite(b *testing.B) {
	for _, sensors := range []int{1000, 10} {
		readings := make([]telemetry.Reading, 0, 1000)
		for i := range sensors {
			readings = append(readings, weather(fmt.Sprintf("s-%04d", i), 1000/sensors)...)
		}
		for name, address := range map[string]func(*daemon) string{"http": func(d *daemon) string { return d.http }, "grpc": func(d *daemon) string { return d.grpc }} {
			b.Run(fmt.Sprintf("%s/%d-sensors", name, sensors), func(b *testing.B) {
				d := startDaemon(b)
				d.journal.forget = true
				c := newClient(b, address(d))
				b.ReportAllocs()
				for b.Loop() {
					if r, err := c.Write(b.Context(), readings...); err != nil || r.Accepted != len(readings) {
						b.Fatal(r, err)
					}
				}
				b.ReportMetric(float64(b.N*len(readings))/b.Elapsed().Seconds(), "readings/s")
			})
		}
	}
}

// BenchmarkBatcher counts one reading as an operation.
func BenchmarkBatcher(b *testing.B) {
	for name, address := range map[string]func(*daemon) string{"http": func(d *daemon) string { return d.http }, "grpc": func(d *daemon) string { return d.grpc }} {
		b.Run(name, func(b *testing.B) {
			d := startDaemon(b)
			d.journal.forget = true
			batcher, err := newClient(b, address(d)).NewBatcher(BatcherConfig{})
			if err != nil {
				b.Fatal(err)
			}
			readings := make([]telemetry.Reading, 100)
			for i := range readings {
				readings[i] = weather(fmt.Sprintf("s-%04d", i), 1)[0]
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := batcher.Add(b.Context(), readings[n%len(readings)]); err != nil {
					b.Fatal(err)
				}
				n++
			}
			if err := batcher.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
		})
	}
}
