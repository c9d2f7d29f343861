package send

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigsThatCannotBe(t *testing.T) {
	t.Parallel()
	for message, change := range map[string]func(*Config){
		"allowed: 1 to":                 func(c *Config) { c.Connections = 0 },
		"timeout -1s is negative":       func(c *Config) { c.Timeout = -time.Second },
		"allowed: plain and compact":    func(c *Config) { c.Form = "wide" },
		"allowed: journaled and stored": func(c *Config) { c.Ack = "none" },
		"allowed: http://":              func(c *Config) { c.Target = "x" },
	} {
		c := Config{Target: "http://localhost:1", Connections: 1}
		change(&c)
		_, err := New(c)
		require.ErrorContains(t, err, message)
	}
}

func TestThereAreAsManySendersAsConnections(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		c := Config{Target: target(startDaemon(t, &journal{})), Connections: 40}
		way(&c)
		pool, err := New(c)
		require.NoError(t, err)
		require.NoError(t, pool.Check(t.Context()))
		for range c.Connections {
			s, err := pool.Sender(t.Context())
			require.NoError(t, err)
			defer func() { assert.NoError(t, s.Close()) }()
			a, err := s.Send(t.Context(), weather(1))
			require.NoError(t, err)
			assert.Equal(t, 1, a.Accepted)
		}
		if pool.Protocol() == "grpc" {
			assert.Len(t, pool.conns, 3)
		}
		_, err = pool.Sender(t.Context())
		require.ErrorContains(t, err, "there are 40 senders already")
		require.NoError(t, pool.Close())
	})
}

func TestADaemonThatIsNotThere(t *testing.T) {
	t.Parallel()
	gone := webServer(t, nil)
	gone.Close()
	address := gone.Listener.Addr().String()
	for _, scheme := range []string{"http", "grpc"} {
		pool, err := New(Config{Target: scheme + "://" + address, Connections: 1, Timeout: 5 * time.Second})
		require.NoError(t, err)
		err = pool.Check(t.Context())
		require.ErrorContains(t, err, "reach "+scheme+"://"+address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, pool.Close())
	}
}
