package send

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATargetThatIsNoAddress(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Target: "x"})
	require.ErrorContains(t, err, "allowed: http://")
}

func TestSendersShareConnectionsOfGRPC(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, target func(*daemon) string, way func(*Config)) {
		c := Config{Target: target(startDaemon(t, &journal{}))}
		way(&c)
		pool, err := New(c)
		require.NoError(t, err)
		require.NoError(t, pool.Check(t.Context()))
		for range 40 {
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
		require.NoError(t, pool.Close())
	})
}

func TestADaemonThatIsNotThere(t *testing.T) {
	t.Parallel()
	gone := webServer(t, nil)
	gone.Close()
	address := gone.Listener.Addr().String()
	for _, scheme := range []string{"http", "grpc"} {
		pool, err := New(Config{Target: scheme + "://" + address, Timeout: 5 * time.Second})
		require.NoError(t, err)
		err = pool.Check(t.Context())
		require.ErrorContains(t, err, "reach "+scheme+"://"+address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, pool.Close())
	}
}
