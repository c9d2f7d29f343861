package faulttest_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// grpcAttacks speak HTTP/2, some of it.
func (a *attacker) grpcAttacks() []attack {
	many := pick(a.full, 30, 150)
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	pings := bytes.Repeat([]byte("\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"), 100)
	settings := bytes.Repeat([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), 100)
	bomb := bytes.Repeat(inGzip(make([]byte, 16<<20)), 50)
	message := append([]byte{1, byte(len(bomb) >> 24), byte(len(bomb) >> 16), byte(len(bomb) >> 8), byte(len(bomb))}, bomb...)
	pause := pick(a.full, 100*time.Millisecond, 50*time.Millisecond)
	return []attack{
		{"pings", 2, pause, func(ctx context.Context) { a.flood(ctx, a.grpc, "gRPC ping ", preface, pings) }},
		{"settings", 2, pause, func(ctx context.Context) { a.flood(ctx, a.grpc, "gRPC settings ", preface, settings) }},
		{"gRPC bomb", 2, 5 * pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", a.token, bytes.NewReader(message), "gzip")
		}},
		{"gRPC without a token", 2, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", "", bytes.NewReader([]byte{0, 0, 0, 0, 0}), "")
		}},
		{"gRPC junk", 1, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "Write", a.token, bytes.NewReader([]byte{0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff}), "")
		}},
		{"gRPC claims a GiB", 2, pause, func(ctx context.Context) {
			a.grpcCall(ctx, "WriteStream", a.token, bytes.NewReader([]byte{0, 0x40, 0, 0, 0, 1, 2, 3}), "")
		}},
		{"half-open streams", many, time.Second, func(ctx context.Context) {
			reader, writer := io.Pipe()
			defer writer.Close()
			go func() { _, _ = writer.Write([]byte{0, 0, 0, 0xff, 0xff, 1, 2, 3}) }()
			a.grpcCall(ctx, "WriteStream", a.token, reader, "")
		}},
		{"streams that are reset", 2, pause, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
			defer cancel()
			a.grpcCall(ctx, "WriteStream", a.token, bytes.NewReader([]byte{0, 0, 0, 0, 9}), "")
		}},
	}
}

// grpcCall calls a method as gRPC does, with whatever body.
func (a *attacker) grpcCall(ctx context.Context, method, token string, body io.Reader, encoding string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.grpc+"/brim.v1.IngestService/"+method, body)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	if encoding != "" {
		req.Header.Set("Grpc-Encoding", encoding)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := a.h2.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.saw("gRPC cut", err.Error())
		}
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	code, message := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if code == "" {
		code, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	a.saw("gRPC "+code, message+string(text))
}
