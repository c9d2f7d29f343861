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
	"time"

	"github.com/eclipse/paho.golang/autopaho"
)

// dialTime is how long a connection may take, TLS included.
const dialTime = 10 * time.Second

// A connection buffers reads and writes, because the client reads byte by byte and writes in
// small pieces.
type connection struct {
	net.Conn

	in    *bufio.Reader
	first [4]byte // the first bytes read
	heard int     // how many of them

	mu  sync.Mutex
	out *bufio.Writer
}

func newConnection(c net.Conn) *connection {
	return &connection{Conn: c, in: bufio.NewReaderSize(c, 64<<10), out: bufio.NewWriterSize(c, 16<<10)}
}

// Read implements net.Conn, for one goroutine.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if c.heard < len(c.first) {
		c.heard += copy(c.first[c.heard:], p[:n])
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

// oldAnswer reports whether the broker answered in MQTT 3.1.1, where a CONNACK has two bytes;
// in MQTT 5 it has at least three.
func (c *connection) oldAnswer() bool {
	return c.heard >= 2 && c.first[0] == 0x20 && c.first[1] == 2
}

// dial connects to the broker.
func (c *Config) dial(ctx context.Context, server *url.URL) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	if server.Scheme == schemePlain {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
		if err != nil {
			return nil, err
		}
		return newConnection(conn), nil
	}
	settings, err := c.tls(server.Hostname())
	if err != nil {
		return nil, err
	}
	conn, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err
	}
	return newConnection(conn), nil
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

// meaning describes the reason codes of MQTT 5 that an operator can act on.
func meaning(code byte) string {
	switch code {
	case 0x80:
		return "unspecified error"
	case 0x82:
		return "protocol error"
	case 0x83:
		return "rejected by the broker (implementation-specific error)"
	case 0x84:
		return "the broker does not support MQTT 5, which Brim needs; publishers may still use MQTT 3.1.1"
	case 0x85:
		return "the client id is not allowed"
	case 0x86:
		return "wrong user or password"
	case 0x87:
		return "not authorized"
	case 0x88:
		return "the broker is unavailable"
	case 0x89:
		return "the broker is busy"
	case 0x8a:
		return "banned"
	case 0x8e:
		return "another client connected with the same client id"
	case 0x8f:
		return "the topic filter is invalid"
	case 0x97:
		return "a quota of the broker is exceeded"
	case 0x9e:
		return "the broker does not support shared subscriptions"
	case 0xa2:
		return "the broker does not support wildcard subscriptions"
	}
	return fmt.Sprintf("reason code 0x%02x", code)
}

// explain returns an error that says why a connection failed.
func explain(err error, last *atomic.Pointer[connection]) error {
	var refused *autopaho.ConnackError
	c := last.Load()
	switch {
	case c != nil && c.oldAnswer():
		return errors.New("the broker answered in MQTT 3.1.1; Brim needs a broker that speaks MQTT 5, publishers may still use 3.1.1")
	case errors.As(err, &refused):
		return fmt.Errorf("the broker refused the connection: %s", meaning(refused.ReasonCode))
	case c != nil && c.heard == 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
		return errors.New("the broker closed the connection without an answer; Brim needs a broker that speaks MQTT 5")
	}
	return err
}
