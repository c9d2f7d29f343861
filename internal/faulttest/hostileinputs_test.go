package faulttest_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/golang/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
)

// inputAttacks target OTLP, remote write and MQTT. Nothing they send can be stored.
func (a *attacker) inputAttacks() []attack {
	pause := pick(a.full, 500*time.Millisecond, time.Second)
	otlp := func(media string, bodies ...[]byte) func(context.Context) {
		return func(ctx context.Context) {
			a.sendTo(ctx, "/v1/metrics", http.Header{"Content-Type": {media}}, bodies[rand.IntN(len(bodies))])
		}
	}
	bomb := bytes.Repeat(inGzip(make([]byte, 16<<20)), 50)
	deep := strings.Repeat(`{"arrayValue":{"values":[`, 50_000)
	write := http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"snappy"}, "X-Prometheus-Remote-Write-Version": {"0.1.0"}}
	snappies := [][]byte{
		snappy.Encode(nil, make([]byte, 100<<20)),            // far over the limit
		[]byte("\xff\xff\xff\xff\x0f\x00a"),                  // claims 4 GiB
		snappy.Encode(nil, manySamples(20_000, 500)),         // too many
		snappy.Encode(nil, bytes.Repeat([]byte{0x0a}, 9999)), // broken
	}
	all := []attack{
		{"OTLP bomb", 1, pause, func(ctx context.Context) {
			a.sendTo(ctx, "/v1/metrics", http.Header{"Content-Type": {"application/x-protobuf"}, "Content-Encoding": {"gzip"}}, bomb)
		}},
		{"deep OTLP in JSON", 1, pause, otlp("application/json", []byte(`{"resourceMetrics":[{"resource":{"attributes":[{"key":"a","value":`+deep))},
		{"deep or large OTLP", 1, pause, otlp("application/x-protobuf", deepOTLP(5000), manyPoints(200_000), manyBuckets(1_000_000))},
		{"remote write bombs", 2, pause, func(ctx context.Context) { a.sendTo(ctx, "/api/v1/write", write, snappies[rand.IntN(len(snappies))]) }},
		{"slow remote write", 10, time.Second, func(ctx context.Context) {
			head := "POST /api/v1/write HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token +
				"\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\nContent-Length: 1000000\r\n\r\n"
			a.drip(ctx, a.http, "slow ", []byte(head), 300*time.Millisecond)
		}},
	}
	if a.mqtt != "" {
		all = append(all, attack{"bad MQTT messages", 2, pause, a.publishBad})
	}
	return all
}

// sendTo posts a body to a path.
func (a *attacker) sendTo(ctx context.Context, path string, header http.Header, body []byte) {
	a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + path, token: a.token, header: header.Clone(), body: bytes.NewReader(body)})
}

// publishBad publishes messages that must all be refused.
func (a *attacker) publishBad(ctx context.Context) {
	p, err := (&mosquitto.Broker{Address: a.mqtt}).Publisher(ctx, fmt.Sprint("attacker-", rand.Uint64()))
	if err != nil {
		return
	}
	defer p.Close()
	for _, m := range []struct{ topic, payload string }{
		{"hostile/s", ""}, {"hostile/s", "nan"}, {"hostile/s", `{"fields":`}, {"hostile/s", strings.Repeat(`{"a":[`, 50_000)},
		{"hostile/s", `{"$where":1}`}, {"hostile/", "1"}, {"hostile/s", "[" + strings.Repeat(`{"fields":{"a":1}},`, 20_000) + "{}]"},
		{"hostile/" + strings.Repeat("x", 60_000), "1"}, {"hostile/s", strings.Repeat("x", 400_000)},
		{"spBv1.0/g/NDATA/n", "\xff\xff\xff"}, {"spBv1.0/g/NBIRTH/n/d", "x"}, {"spBv1.0/", "x"}, {"spBv1.0/g/NOTHING/n", "x"},
	} {
		if p.Publish(ctx, m.topic, m.payload, 1) == nil {
			a.saw("mqtt published", "")
		}
	}
}

// protoField returns a length-delimited protobuf field.
func protoField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// otlpOf returns an export with one resource, with an attribute value, and one metric.
func otlpOf(attribute, metric []byte) []byte {
	resource := protoField(1, protoField(1, append(protoField(1, []byte("a")), protoField(2, attribute)...)))
	return protoField(1, append(resource, protoField(2, protoField(2, append(protoField(1, []byte("m")), metric...)))...))
}

// deepOTLP has an attribute of nested arrays.
func deepOTLP(levels int) []byte {
	value := protoField(1, []byte("x"))
	for range levels {
		value = protoField(5, protoField(1, value))
	}
	return otlpOf(value, nil)
}

// manyPoints has a gauge with n points.
func manyPoints(n int) []byte {
	return otlpOf(protoField(1, []byte("x")), protoField(5, bytes.Repeat(protoField(1, nil), n)))
}

// manyBuckets has a histogram with n buckets.
func manyBuckets(n int) []byte {
	return otlpOf(protoField(1, []byte("x")), protoField(9, protoField(1, protoField(6, make([]byte, 8*n)))))
}

// manySamples has n series with a number of samples each.
func manySamples(n, samples int) []byte {
	label := protoField(1, append(protoField(1, []byte("__name__")), protoField(2, []byte("m"))...))
	return bytes.Repeat(protoField(1, append(label, bytes.Repeat(protoField(2, nil), samples)...)), n)
}
