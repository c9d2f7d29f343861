// Package mosquitto runs mosquitto, and publishes to it, in tests.
package mosquitto

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// A Broker is mosquitto, which keeps its sessions on disk.
type Broker struct {
	Address string // HOST:PORT

	t       testing.TB
	program string
	config  string
	process *brimtest.Process
}

// Start starts a broker with more lines in its configuration. Without mosquitto the test
// is skipped.
func Start(t testing.TB, lines ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, program: brimtest.Program(t, "mosquitto")}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	b.config = filepath.Join(dir, "mosquitto.conf")
	global := fmt.Sprintf("max_queued_messages 0\npersistence true\npersistence_location %s/\nuser root\n", dir)
	b.Address = b.listen(global, "allow_anonymous true\n"+strings.Join(lines, "\n"))
	return b
}

// listen adds a listener to the configuration, starts the broker, and returns the listener's
// address.
func (b *Broker) listen(config, lines string) string {
	b.t.Helper()
	for range 10 { // the port may be taken by another before the broker has it
		address := freeAddress(b.t)
		host, port, err := net.SplitHostPort(address)
		require.NoError(b.t, err)
		require.NoError(b.t, os.WriteFile(b.config, fmt.Appendf(nil, "%slistener %s %s\n%s\n", config, port, host, lines), 0o600))
		if b.Restart(); b.answers(address) {
			return address
		}
	}
	require.FailNow(b.t, "mosquitto does not start", b.process.Logged())
	return ""
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// answers waits until the broker listens; false if it has ended.
func (b *Broker) answers(address string) bool {
	return b.process.Holds(func() bool {
		conn, err := (&net.Dialer{}).DialContext(b.t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// Restart starts the broker again, on the same address.
func (b *Broker) Restart() {
	b.process = brimtest.Start(b.t, exec.CommandContext(context.WithoutCancel(b.t.Context()), b.program, "-c", b.config), syscall.SIGKILL)
}

// AlsoListen adds a listener with lines of configuration, and restarts the broker. It returns
// the listener's address.
func (b *Broker) AlsoListen(lines ...string) string {
	b.t.Helper()
	content, err := os.ReadFile(b.config)
	require.NoError(b.t, err)
	b.Stop()
	return b.listen(string(content), strings.Join(lines, "\n"))
}

// Pid is the process ID.
func (b *Broker) Pid() int { return b.process.Cmd.Process.Pid }

// Kill ends the broker by SIGKILL.
func (b *Broker) Kill() { b.process.Kill() }

// Stop ends the broker by SIGTERM: it saves its sessions.
func (b *Broker) Stop() { b.process.Stop() }

// URL is that of the broker without TLS.
func (b *Broker) URL() string { return "mqtt://" + b.Address }

// A Publisher is a connection to the broker. Its methods may be called by several
// goroutines.
type Publisher struct{ client *paho.Client }

// Publisher connects. In a test that kills the broker it fails.
func (b *Broker) Publisher(ctx context.Context, id string) (*Publisher, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.Address)
	if err != nil {
		return nil, err
	}
	p := new(Publisher)
	p.client = paho.NewClient(paho.ClientConfig{
		Conn: conn, PacketTimeout: 5 * time.Second, // a message that is sent as the connection breaks has no other end
		OnClientError:      func(error) {},
		OnServerDisconnect: func(*paho.Disconnect) {},
	})
	if _, err := p.client.Connect(ctx, &paho.Connect{ClientID: id, KeepAlive: 60, CleanStart: true}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

// Publish returns when the broker has acknowledged the message, with QoS 0 when it is sent.
func (p *Publisher) Publish(ctx context.Context, topic, payload string, qos int) error {
	_, err := p.client.Publish(ctx, &paho.Publish{Topic: topic, Payload: []byte(payload), QoS: byte(qos)})
	return err
}

// Close disconnects.
func (p *Publisher) Close() {
	_ = p.client.Disconnect(&paho.Disconnect{})
}
