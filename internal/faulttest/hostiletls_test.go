package faulttest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// trusting is TLS that takes any certificate: who attacks asks for none.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} } //nolint:gosec // an attacker

// tlsAttacks are against a listener that speaks TLS.
func (a *attacker) tlsAttacks() []attack {
	many := pick(a.full, 20, 100)
	pause := pick(a.full, 20*time.Millisecond, 10*time.Millisecond)
	hello := []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
	one := []byte(`{"sensorId":"x","fields":{"v":1}}`)
	post := func(ctx context.Context, token string) {
		a.call(ctx, call{
			method: http.MethodPost, url: "https://" + a.tls + "/v1/readings", token: token, secure: true, mark: "TLS ",
			header: http.Header{"Content-Type": {"application/json"}}, body: bytes.NewReader(one),
		})
	}
	return []attack{
		{"hellos", 4, pause, func(ctx context.Context) { a.rawTLS(ctx, "TLS ", nil, time.Millisecond) }},
		{"half a hello", many, time.Second, func(ctx context.Context) { a.drip(ctx, a.tls, "TLS slow ", hello, 300*time.Millisecond) }},
		{"hello of junk", 2, pause, func(ctx context.Context) {
			junk := make([]byte, 5+rand.IntN(4096))
			for i := range junk {
				junk[i] = byte(rand.Uint32())
			}
			copy(junk, hello[:3])
			a.raw(ctx, a.tls, "TLS junk ", junk, 100*time.Millisecond)
		}},
		{"no TLS to who speaks it", 1, pause, func(ctx context.Context) {
			a.raw(ctx, a.tls, "TLS none ", []byte("GET / HTTP/1.1\r\nHost: brim\r\n\r\n"), 100*time.Millisecond)
		}},
		{"no token over TLS", 2, pause, func(ctx context.Context) { post(ctx, "") }},
		{"wrong token over TLS", 1, pause, func(ctx context.Context) { post(ctx, unknown) }},
		{"requests that are reset", 2, pause, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(5000))*time.Microsecond)
			defer cancel()
			post(ctx, a.token)
		}},
	}
}

// rawTLS is raw over TLS, of HTTP/1.
func (a *attacker) rawTLS(ctx context.Context, mark string, data []byte, patience time.Duration) {
	plain, err := dialElsewhere(ctx, "tcp", a.tls)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	conn := tls.Client(plain, trusting())
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = plain.Close() })()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if err := conn.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil {
			a.saw(mark+"cut", err.Error())
		}
		return
	}
	a.saw(mark+"shaken hands", "")
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(data)
	answer, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	for _, code := range statuses(answer) {
		a.saw(mark+code, string(answer))
	}
}
