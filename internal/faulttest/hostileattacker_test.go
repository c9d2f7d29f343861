package faulttest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An attack is something that an attacker does again and again.
type attack struct {
	name    string
	clients int
	every   time.Duration // pause in between
	once    func(ctx context.Context)
}

// A target is what attackers know.
type target struct {
	HTTP, GRPC, Admin string // host:port
	TLS               string // the HTTP listener of a daemon that speaks TLS
	Token, Swarm      string // with quotas; the swarm's is for new sensors alone
	Full              bool   // the form
	First             int    // number of the first sensor
}

// An attacker does not call from where the good clients do, so that those are
// not taken for him.
type attacker struct {
	http, grpc, admin, tls, token, swarm string // as of target
	full                                 bool

	client *http.Client
	h2     *http.Client // HTTP/2 without TLS, as gRPC speaks
	secure *http.Client // HTTP/2 over TLS
	bomb   []byte       // in one piece, in gzip

	mu    sync.Mutex
	codes map[string]int  // how often each answer was given
	texts map[string]bool // different ones, some
	next  int
	first int
}

func newAttacker(t target) *attacker {
	a := &attacker{
		http: t.HTTP, grpc: t.GRPC, admin: t.Admin, tls: t.TLS, token: t.Token, swarm: t.Swarm, full: t.Full, next: t.First, first: t.First,
		codes: make(map[string]int), texts: make(map[string]bool),
	}
	transport := &http.Transport{DialContext: dialElsewhere, MaxIdleConnsPerHost: 64, DisableCompression: true}
	a.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	a.h2 = &http.Client{Transport: &http.Transport{DialContext: dialElsewhere, Protocols: &protocols}, Timeout: 20 * time.Second}
	a.secure = &http.Client{Transport: &http.Transport{DialContext: dialElsewhere, ForceAttemptHTTP2: true, TLSClientConfig: trusting()}, Timeout: 20 * time.Second}
	return a
}

// close gives connections back.
func (a *attacker) close() {
	a.client.CloseIdleConnections()
	a.h2.CloseIdleConnections()
	a.secure.CloseIdleConnections()
}

func dialElsewhere(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}, Control: portLater}
	return d.DialContext(ctx, network, address)
}

// saw notes an answer.
func (a *attacker) saw(code, text string) {
	const most = 5000
	a.mu.Lock()
	defer a.mu.Unlock()
	a.codes[code]++
	if len(a.texts) < most {
		a.texts[text[:min(len(text), 2000)]] = true
	}
}

// seen is how often a code was given to requests for readings.
func (a *attacker) seen(code string) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return float64(a.codes[code])
}

func (a *attacker) answers() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Collect(maps.Keys(a.texts)), "\n")
}

// String is how often each answer was given.
func (a *attacker) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, code := range slices.Sorted(maps.Keys(a.codes)) {
		out = append(out, fmt.Sprintf("%s: %d", code, a.codes[code]))
	}
	return "attackers were answered: " + strings.Join(out, ", ")
}

// number is a different one each time.
func (a *attacker) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return a.next
}

// A call is a request of an attacker over HTTP.
type call struct {
	method, url string
	token       string
	header      http.Header
	body        io.Reader
	secure      bool   // over TLS
	mark        string // before the code, where it is noted; empty: a request for readings
}

func (a *attacker) call(ctx context.Context, c call) {
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, c.body)
	if err != nil {
		return
	}
	if c.header != nil {
		req.Header = c.header
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := pick(c.secure, a.client, a.secure).Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.saw(c.mark+"cut", err.Error())
		}
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	a.saw(c.mark+strconv.Itoa(resp.StatusCode), string(text))
}

// post sends readings to the attackers' stream.
func (a *attacker) post(ctx context.Context, token string, body []byte, headers ...string) {
	h := http.Header{"Content-Type": {"application/x-ndjson"}}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	a.call(ctx, call{method: http.MethodPost, url: "http://" + a.http + "/v1/streams/" + preyStream + "/readings", token: token, header: h, body: bytes.NewReader(body)})
}

// raw opens a connection, writes to it, and reads until the other side closes
// it, for as long as patience lasts.
func (a *attacker) raw(ctx context.Context, address, mark string, data []byte, patience time.Duration) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(data)
	answer, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	for _, code := range statuses(answer) {
		a.saw(mark+code, string(answer))
	}
}

// statuses are the codes of the HTTP/1 answers in what a connection said.
func statuses(answer []byte) (codes []string) {
	for line := range bytes.Lines(answer) {
		if rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 ")); ok && len(rest) >= 3 {
			codes = append(codes, string(rest[:3]))
		}
	}
	return codes
}

// drip writes data and then one byte after another, until the other side has
// enough of it.
func (a *attacker) drip(ctx context.Context, address, mark string, data []byte, every time.Duration) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	if _, err := conn.Write(data); err != nil {
		return
	}
	for ctx.Err() == nil {
		rest(ctx, every)
		if _, err := conn.Write([]byte("a")); err != nil {
			a.saw(mark+"cut", "")
			return
		}
	}
}

// flood writes the same again and again and reads nothing.
func (a *attacker) flood(ctx context.Context, address, mark string, first, again []byte) {
	conn, err := dialElsewhere(ctx, "tcp", address)
	if err != nil {
		a.saw(mark+"refused", err.Error())
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(first); err != nil {
		return
	}
	for ctx.Err() == nil {
		if _, err := conn.Write(again); err != nil {
			if ctx.Err() == nil {
				a.saw(mark+"cut", "")
			}
			return
		}
		rest(ctx, time.Millisecond)
	}
}
