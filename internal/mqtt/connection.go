package mqtt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/gorilla/websocket"
)

// dialTime is how long a connection may take, TLS included.
const dialTime = 10 * time.Second

// A connection buffers reads and writes, because the client reads byte by byte and writes in
// small pieces.
type connection struct {
	net.Conn

	in       *bufio.Reader
	first    [4]byte // the first bytes read
	firstLen int     // how many of them

	mu  sync.Mutex
	out *bufio.Writer

	open context.Context //nolint:containedctx // ends with the connection
	end  context.CancelFunc
}

func newConnection(ctx context.Context, conn net.Conn) *connection {
	c := &connection{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 16<<10)}
	c.open, c.end = context.WithCancel(ctx)
	return c
}

// Read implements net.Conn, for one goroutine.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if c.firstLen < len(c.first) {
		c.firstLen += copy(c.first[c.firstLen:], p[:n])
	}
	return n, err
}

// Lock implements sync.Locker, which the client uses around the parts of a packet.
func (c *connection) Lock() { c.mu.Lock() }

// Unlock flushes the packet. The next write returns the error, if there is one.
func (c *connection) Unlock() {
	_ = c.out.Flush()
	c.mu.Unlock()
}

// Write implements net.Conn, under the lock.
func (c *connection) Write(p []byte) (int, error) { return c.out.Write(p) }

// Close implements net.Conn. It frees the client from a message that waits for the journal,
// because the client reports a lost connection only when it has handed over all messages.
func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

// answeredV311 reports whether the broker answered in MQTT 3.1.1, where a CONNACK has two bytes;
// in MQTT 5 it has at least three.
func (c *connection) answeredV311() bool {
	return c.firstLen >= 2 && c.first[0] == 0x20 && c.first[1] == 2
}

// dial connects to the broker.
func (c *Config) dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if !schemes[server.Scheme].tls {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
	}
	settings, err := c.tls(server.Hostname())
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", server.Host)
}

// open connects to the broker, and begins a WebSocket if the URL asks for one.
func (c *Config) open(ctx context.Context, server *url.URL) (net.Conn, error) {
	if !schemes[server.Scheme].webSocket {
		return c.dial(ctx, server)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx, server) }
	dialer := websocket.Dialer{NetDialContext: dial, NetDialTLSContext: dial, HandshakeTimeout: dialTime, Subprotocols: []string{"mqtt"}}
	conn, response, err := dialer.DialContext(ctx, server.String(), nil)
	switch {
	case response != nil && err != nil:
		return nil, fmt.Errorf("the broker does not answer as a WebSocket at this URL, but with HTTP status %d; check its path, such as /mqtt", response.StatusCode)
	case err != nil:
		return nil, err
	}
	return &webSocket{conn, websocket.JoinMessages(conn, "")}, nil
}

// A webSocket is a connection whose packets are sent in binary messages.
type webSocket struct {
	*websocket.Conn

	in io.Reader // of all messages
}

// Read implements net.Conn.
func (w *webSocket) Read(p []byte) (int, error) { return w.in.Read(p) }

// Write implements net.Conn.
func (w *webSocket) Write(p []byte) (int, error) {
	if err := w.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetDeadline implements net.Conn.
func (w *webSocket) SetDeadline(t time.Time) error {
	return errors.Join(w.SetReadDeadline(t), w.SetWriteDeadline(t))
}

// tls returns the TLS configuration. It reads the files each time, because they may have
// changed.
func (c *Config) tls(host string) (*tls.Config, error) {
	settings := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read mqtt-ca: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s contains no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// maxPasswordBytes is the length limit of MQTT.
const maxPasswordBytes = 65535

// password reads the password file. Errors do not show its content.
func (c *Config) password() ([]byte, error) {
	if c.PasswordFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) == 0 || len(text) > maxPasswordBytes {
		return nil, fmt.Errorf("%s does not contain a password of 1 to %d bytes", c.PasswordFile, maxPasswordBytes)
	}
	return text, nil
}

// meanings describe the reason codes of MQTT 5 that an operator can act on.
var meanings = map[byte]string{
	0x80: "unspecified error",
	0x82: "protocol error",
	0x83: "rejected by the broker (implementation-specific error)",
	0x84: "the broker does not support MQTT 5, which Brim needs; publishers may still use MQTT 3.1.1",
	0x85: "the client id is not allowed",
	0x86: "wrong user or password",
	0x87: "not authorized",
	0x88: "the broker is unavailable",
	0x89: "the broker is busy",
	0x8a: "banned",
	0x8e: "another client connected with the same client id",
	0x8f: "the topic filter is invalid",
	0x97: "a quota of the broker is exceeded",
	0x9e: "the broker does not support shared subscriptions",
	0xa2: "the broker does not support wildcard subscriptions",
}

func meaning(code byte) string {
	if text, ok := meanings[code]; ok {
		return text
	}
	return fmt.Sprintf("reason code 0x%02x", code)
}

// tlsAlert is the first byte of an alert of TLS; no packet of MQTT begins with it.
const tlsAlert = 0x15

// explain returns an error that says why a connection failed.
func explain(err error, server *url.URL, last *atomic.Pointer[connection]) error {
	var refused *autopaho.ConnackError
	var noTLS tls.RecordHeaderError
	c, over := last.Load(), schemes[server.Scheme]
	ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case over.tls && c == nil && (ended || errors.As(err, &noTLS)):
		return fmt.Errorf("there is no TLS at port %s; use the broker's TLS port, or a URL that begins with %s://", server.Port(), over.other)
	case c != nil && !over.tls && c.firstLen > 0 && c.first[0] == tlsAlert:
		return fmt.Errorf("the broker speaks TLS at port %s; use a URL that begins with %s://", server.Port(), over.other)
	case c != nil && c.answeredV311():
		return errors.New("the broker answered in MQTT 3.1.1; Brim needs a broker that speaks MQTT 5, publishers may still use 3.1.1")
	case errors.As(err, &refused):
		return fmt.Errorf("the broker refused the connection: %s", meaning(refused.ReasonCode))
	case c != nil && c.firstLen == 0 && ended:
		text := "the broker closed the connection without an answer; Brim needs a broker that speaks MQTT 5"
		if !over.tls {
			text += fmt.Sprintf("; if it speaks TLS at port %s, use a URL that begins with %s://", server.Port(), over.other)
		}
		return errors.New(text)
	}
	return err
}
