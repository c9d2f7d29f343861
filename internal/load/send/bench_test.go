package send

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// One operation is a request and its answer by one Sender, including the daemon's time and
// allocations; BenchmarkOnlyTheSender excludes them.
func BenchmarkSend(b *testing.B) {
	for _, way := range []struct {
		name   string
		form   wire.Form
		target func(*daemon) string
	}{
		{"http", "", func(d *daemon) string { return d.http }},
		{"grpc-plain", wire.Plain, func(d *daemon) string { return d.grpc }},
		{"grpc-compact", wire.Compact, func(d *daemon) string { return d.grpc }},
	} {
		for _, batch := range []int{1, 100} {
			b.Run(way.name+"/batch-"+map[int]string{1: "1", 100: "100"}[batch], func(b *testing.B) {
				d := startDaemon(b, &journal{})
				s := newSender(b, way.target(d), func(c *Config) { c.Form = way.form })
				r := weather(batch)
				b.ReportAllocs()
				for b.Loop() {
					if a, err := s.Send(b.Context(), r); err != nil || a.Accepted != batch {
						b.Fatal(a, err)
					}
				}
			})
		}
	}
}

// BenchmarkOnlyTheSender uses a server that answers blindly, and compares net/http's client.
func BenchmarkOnlyTheSender(b *testing.B) {
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 49\r\n\r\n" + `{"accepted":1,"rejected":0,"ack":"journaled"}    `)
	r := weather(1)
	ctx := context.Background()
	b.Run("this", func(b *testing.B) {
		s := newSender(b, "http://"+blindServer(b, answer))
		b.ReportAllocs()
		for b.Loop() {
			if a, err := s.Send(ctx, r); err != nil || a.Accepted != 1 {
				b.Fatal(a, err)
			}
		}
	})
	b.Run("net-http", func(b *testing.B) {
		url := "http://" + blindServer(b, answer) + "/v1/readings"
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		var body []byte
		b.ReportAllocs()
		for b.Loop() {
			body = telemetry.AppendNDJSON(body[:0], r.Readings)
			if err := sendNetHTTP(ctx, transport, url, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func sendNetHTTP(ctx context.Context, transport *http.Transport, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	_, err = httpAnswer(resp.StatusCode, read, 1)
	return err
}
