package faulttest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// attacks are all there are. In the short form fewer do the same at once.
func (a *attacker) attacks() []attack {
	return slices.Concat(a.bombs(), a.slowClients(), a.strangeReadings(), a.floods(), a.grpcAttacks(), a.tlsAttacks())
}

// pick returns the value for the form at hand.
func pick[T any](full bool, short, long T) T {
	if full {
		return long
	}
	return short
}

// bombs inflate to 800 MB.
func (a *attacker) bombs() []attack {
	gz, zst := a.readyBombs()
	pause := pick(a.full, 500*time.Millisecond, 2*time.Second)
	return []attack{
		{"gzip bomb", 2, pause, func(ctx context.Context) { a.post(ctx, a.token, gz, "Content-Encoding", "gzip") }},
		{"zstd bomb", 2, pause, func(ctx context.Context) { a.post(ctx, a.token, zst, "Content-Encoding", "zstd") }},
		{"bomb in one piece", 1, pause, a.sendBomb},
		{"bomb of nobody", 2, pause, func(ctx context.Context) { a.post(ctx, unknown, gz, "Content-Encoding", "gzip") }},
		{"line protocol bomb", 1, pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/write?db=" + preyStream, token: a.token, header: http.Header{"Content-Encoding": {"gzip"}}, body: bytes.NewReader(gz)})
		}},
	}
}

// readyBombs returns bombs of lines, in gzip and zstd, and sees to the one in one
// piece.
func (a *attacker) readyBombs() (gz, zst []byte) {
	line := bytes.Repeat([]byte(strings.Repeat(" ", 1023)+"\n"), 16<<10)
	const times = 50
	encoder, err := zstd.NewWriter(nil)
	must(err)
	gz, zst = bytes.Repeat(inGzip(line), times), bytes.Repeat(encoder.EncodeAll(line, nil), times)
	must(encoder.Close())
	a.bomb = append(inGzip([]byte("[")), gz...)
	return gz, zst
}

func inGzip(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	must(err)
	must(w.Close())
	return out.Bytes()
}

// must is for what cannot go wrong. An attacker has no test to fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// slowClients hold on to what they have.
func (a *attacker) slowClients() []attack {
	many := pick(a.full, 60, 300)
	head := "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token + "\r\n"
	body := []byte(head + "Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n{")
	chunked := []byte(head + "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n{")
	ask := []byte(strings.Repeat("GET /v1/streams HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer "+a.token+"\r\n\r\n", 50))
	return []attack{
		{"slow head", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", []byte(head+"X-Slow: "), 300*time.Millisecond) }},
		{"slow admin head", many / 10, time.Second, func(ctx context.Context) {
			a.drip(ctx, a.admin, "slow ", []byte("GET /metrics HTTP/1.1\r\nHost: brim\r\nX-Slow: "), 300*time.Millisecond)
		}},
		{"slow body", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", body, 300*time.Millisecond) }},
		{"slow chunk", many / 4, time.Second, func(ctx context.Context) { a.drip(ctx, a.http, "slow ", chunked, 300*time.Millisecond) }},
		{"slow gRPC preface", many / 4, time.Second, func(ctx context.Context) {
			a.drip(ctx, a.grpc, "slow ", []byte("PRI * HTTP/2.0\r\n"), 300*time.Millisecond)
		}},
		{"does not read", many / 6, 50 * time.Millisecond, func(ctx context.Context) { a.flood(ctx, a.http, "unread ", nil, ask) }},
		{"silent connections", many, time.Second, func(ctx context.Context) { a.raw(ctx, a.http, "idle ", nil, time.Minute) }},
	}
}

// strangeReadings come with a token.
func (a *attacker) strangeReadings() []attack {
	field := func(n int, name func(i int) string) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"sensorId":"f-%d","fields":{`, rand.IntN(100))
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%d", name(i), i)
		}
		b.WriteString("}}\n")
		return b.Bytes()
	}
	names := []string{"$where", "a.b", "a\x00b", "", "_id", "ts", strings.Repeat("x", 200), "$", ".", "..", "constructor"}
	pause := pick(a.full, 50*time.Millisecond, 20*time.Millisecond)
	return []attack{
		{"a million sensors", 2, pick(a.full, pause, 400*time.Millisecond), a.newSensors},
		{"10,000 names in a reading", 1, pause, func(ctx context.Context) {
			a.post(ctx, a.token, field(10_000, func(i int) string { return fmt.Sprint("n", i) }))
		}},
		{"10,000 names over readings", 1, pause, func(ctx context.Context) {
			a.post(ctx, a.token, field(200, func(int) string { return fmt.Sprint("o", rand.IntN(10_000)) }))
		}},
		{"names of operators", 1, pause, func(ctx context.Context) {
			name := names[rand.IntN(len(names))]
			body := fmt.Appendf(nil, `{"sensorId":%q,"fields":{%q:1,"ok":1},"tags":{%q:"$x"}}`+"\n", "$ne."+name, name, name)
			a.post(ctx, a.token, body)
		}},
		{"deep JSON", 1, pause, func(ctx context.Context) { a.post(ctx, a.token, bytes.Repeat([]byte(`{"a":[`), 100_000)) }},
		{"absurd reads", 2, 5 * pause, func(ctx context.Context) {
			paths := []string{
				"/v1/sensors/f-1/readings?from=0&to=253402300800000&limit=100000",
				"/v1/sensors/f-1/readings?limit=99999999999999999999",
				"/v1/sensors/f-1/summary?from=0&to=253402300800000&every=1ms",
				"/v1/sensors/f-1/summary?from=0&to=253402300800000&every=0ms",
				"/v1/sensors?prefix=%24ne&limit=10000", "/v1/sensors/%00/latest", "/v1/sensors/" + strings.Repeat("x", 8000) + "/readings",
			}
			a.call(ctx, call{method: http.MethodGet, url: "http://" + a.http + paths[rand.IntN(len(paths))], token: a.token, mark: "read "})
		}},
		{"admin without the scope", 1, 5 * pause, func(ctx context.Context) {
			path := []string{"/flush", "/hold", "/release", "/debug/pprof/profile?seconds=60", "/debug/pprof/heap"}[rand.IntN(5)]
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.admin + path, token: []string{"", a.token, unknown}[rand.IntN(3)], mark: "admin "})
		}},
		{"deletes without the scope", 1, 5 * pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodDelete, url: "http://" + a.http + "/v1/sensors/s-2001", token: a.token, mark: "delete "})
		}},
	}
}

// newSensors sends a reading of each of many sensors that nobody knows: of so few
// that the quota may let them in, or of many in a large body.
func (a *attacker) newSensors(ctx context.Context) {
	var b bytes.Buffer
	for range []int{400, 2000}[rand.IntN(2)] {
		fmt.Fprintf(&b, "{\"sensorId\":\"m-%d\",\"fields\":{\"v\":1}}\n", a.number())
	}
	a.post(ctx, a.swarm, b.Bytes())
}

// sendBomb sends one that is one value, of which nothing can be done with before
// it is there.
func (a *attacker) sendBomb(ctx context.Context) {
	a.call(ctx, call{
		method: http.MethodPost, url: "http://" + a.http + "/v1/streams/" + preyStream + "/readings", token: a.token,
		header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, body: bytes.NewReader(a.bomb),
	})
}

// floods come without a token, or make no sense at all.
func (a *attacker) floods() []attack {
	one := []byte(`{"sensorId":"x","fields":{"v":1}}`)
	pause := pick(a.full, 10*time.Millisecond, 5*time.Millisecond)
	return []attack{
		{"no token", 4, pause, func(ctx context.Context) { a.post(ctx, "", one) }},
		{"wrong token", 2, pause, func(ctx context.Context) { a.post(ctx, unknown, one) }},
		{"wrong token in the query", 1, pause, func(ctx context.Context) {
			a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/write?u=x&p=" + unknown, body: strings.NewReader("m v=1")})
		}},
		{"huge head", 1, 10 * pause, func(ctx context.Context) { a.post(ctx, a.token, one, "X-Huge", strings.Repeat("h", 1<<20)) }},
		{"5,000 headers", 1, 10 * pause, func(ctx context.Context) {
			headers := make([]string, 0, 10_000)
			for i := range 5000 {
				headers = append(headers, fmt.Sprint("X-", i), "v")
			}
			a.post(ctx, a.token, one, headers...)
		}},
		{"connections", 4, pause, func(ctx context.Context) { a.raw(ctx, a.http, "idle ", nil, time.Millisecond) }},
		{"random bytes", 2, pause, func(ctx context.Context) {
			junk := make([]byte, 1+rand.IntN(4096))
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			a.raw(ctx, []string{a.http, a.grpc, a.admin}[rand.IntN(3)], "junk ", junk, 100*time.Millisecond)
		}},
		{"TLS to who speaks none", 1, pause, func(ctx context.Context) {
			a.raw(ctx, []string{a.http, a.grpc, a.admin}[rand.IntN(3)], "junk ", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 100*time.Millisecond)
		}},
		{"smuggled", 1, 5 * pause, a.smuggle},
	}
}

// smuggle hides a request in another one's body, from whoever counts its bytes
// in the other way. What it hides has no mark, and would be found by the check.
func (a *attacker) smuggle(ctx context.Context) {
	hidden := "POST /v1/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token +
		"\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n" + `{"sensorId":"smuggled","fields":{"v":1}}`
	head := "POST /v1/streams/" + preyStream + "/readings HTTP/1.1\r\nHost: brim\r\nAuthorization: Bearer " + a.token + "\r\n"
	one := `{"sensorId":"x","fields":{"v":1}}`
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(one), one)
	requests := []string{
		head + fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n", len(one), len(one)+len(hidden)) + one + hidden,
		head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk + hidden,
		head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + hidden,
		head + fmt.Sprintf("transfer-encoding: chunked\r\ncontent-length: %d\r\n\r\n", len(chunk)+len(hidden)) + chunk + hidden,
		head + "Transfer-Encoding: xchunked\r\n\r\n" + chunk + hidden,
		head + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n" + chunk + hidden,
		head + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(one)) + one + hidden,
		head + fmt.Sprintf("Content-Length: %d\r\n X: y\r\n\r\n", len(one)) + one + hidden,
		head + "Content-Length: 0x21\r\n\r\n" + one + hidden,
	}
	sent, patience := []byte(requests[rand.IntN(len(requests))]), 200*time.Millisecond
	if rand.IntN(2) == 0 {
		a.raw(ctx, a.http, "smuggled ", sent, patience)
	} else {
		a.rawTLS(ctx, "smuggled over TLS ", sent, patience)
	}
}
