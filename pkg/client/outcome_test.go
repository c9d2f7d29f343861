package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestAQuotaOfRequestsLosesNothing: the daemon refuses calls beyond its quota.
func TestAQuotaOfRequestsLosesNothing(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		quota := access.NoQuota()
		quota.RequestsPerSecond = 20
		guard, err := access.Open(access.Config{Default: quota})
		require.NoError(t, err)
		d := startDaemon(t, func(c *ingest.Config) { c.Guard = guard })
		b, err := newClient(t, address(d)).NewBatcher(BatcherConfig{MaxReadings: 1, InFlight: 8})
		require.NoError(t, err)
		for i := range 40 {
			require.NoError(t, b.Add(t.Context(), one(fmt.Sprint("s", i), 1)))
		}
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, int64(40), b.Stats().Delivered)
		assert.Positive(t, b.Stats().Repeated)
		assert.Len(t, d.journal.taken(), 40)
	})
}

// large returns readings for a request of at least this size.
func large(size int) []telemetry.Reading {
	text := strings.Repeat("x", 1000)
	var fields []telemetry.Field
	for i := range 100 {
		fields = append(fields, telemetry.Field{Name: "f" + string(rune('0'+i/10)) + string(rune('0'+i%10)), Value: telemetry.TextValue(text)})
	}
	all := make([]telemetry.Reading, 0, size/100_000+1)
	for range cap(all) {
		all = append(all, telemetry.Reading{Sensor: "large", Time: noon.Add(time.Duration(len(all)) * time.Second), Fields: fields})
	}
	return all
}

// TestARequestThatIsTooLargeDisturbsNoOther: gRPC itself refuses it while another request
// is being processed.
func TestARequestThatIsTooLargeDisturbsNoOther(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ limit, size int64 }{
		"for any daemon":  {limit: 2 << 20, size: 9 << 20},
		"for this daemon": {limit: 1 << 20, size: 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, func(c *ingest.Config) { c.MaxBodyBytes = row.limit })
			c := newClient(t, d.grpc)
			block, begun := make(chan struct{}), make(chan struct{})
			d.journal.set(func() { d.journal.block, d.journal.begun = block, begun })
			type outcome struct {
				result Result
				err    error
			}
			other := make(chan outcome, 1)
			go func() {
				result, err := c.Write(t.Context(), one("s", 1))
				other <- outcome{result, err}
			}()
			<-begun
			_, err := c.Write(t.Context(), large(int(row.size))...)
			var failed *Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, telemetry.TooLarge, telemetry.KindOf(err))
			assert.Equal(t, 1, failed.Attempts)
			close(block)
			got := <-other
			require.NoError(t, got.err)
			assert.Equal(t, 1, got.result.Attempts)
			assert.Len(t, d.journal.taken(), 1)
		})
	}
}

// TestWhatInflatesTooFarIsSentAsItIs: the daemon refuses to inflate a message.
func TestWhatInflatesTooFarIsSentAsItIs(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, func(c *ingest.Config) { c.MaxInflateRatio = 2 })
	c := newClient(t, d.grpc, func(c *Config) { c.Gzip = true })
	block, begun := make(chan struct{}), make(chan struct{})
	d.journal.set(func() { d.journal.block, d.journal.begun = block, begun })
	attempts := make(chan int, 1)
	go func() {
		result, err := c.Write(t.Context(), one("s", 1))
		assert.NoError(t, err)
		attempts <- result.Attempts
	}()
	<-begun
	regular := make(chan Result, 1)
	go func() {
		result, err := c.Write(t.Context(), large(300_000)...)
		assert.NoError(t, err)
		regular <- result
	}()
	close(block)
	result := <-regular
	assert.Equal(t, 1, result.Attempts)
	assert.Equal(t, 4, result.Accepted)
	assert.Equal(t, 1, <-attempts, "the other request is not disturbed")
	assert.Len(t, d.journal.taken(), 5)
}

// TestWhatInflatesTooFarIsSentAsItIsOverHTTP does the same with a request's body.
func TestWhatInflatesTooFarIsSentAsItIsOverHTTP(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, func(c *ingest.Config) { c.MaxInflateRatio = 2 })
	all := large(3 << 20)
	result, err := newClient(t, d.http, func(c *Config) { c.Gzip = true }).Write(t.Context(), all...)
	require.NoError(t, err)
	assert.Equal(t, len(all), result.Accepted)
	assert.Equal(t, 1, result.Attempts)
	assert.Len(t, d.journal.taken(), len(all))
}

// TestATokenThatIsNotThereYetIsWaitedFor: the source fails while a secret is
// replaced.
func TestATokenThatIsNotThereYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		for _, key := range []string{"", "mine"} {
			var asked atomic.Int64
			c := newClient(t, address(startDaemon(t)), func(c *Config) {
				c.Token = func(context.Context) (string, error) {
					if asked.Add(1) < 3 {
						return "", errors.New("it is being replaced")
					}
					return "good", nil
				}
			})
			result, err := c.Send(t.Context(), Request{Readings: weather("s", 1), Key: key})
			require.NoError(t, err)
			assert.Equal(t, 3, result.Attempts)

			never := newClient(t, address(startDaemon(t)), func(c *Config) { c.Token = Token("") })
			_, err = never.Send(t.Context(), Request{Readings: weather("s", 1), Key: key})
			var failed *Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, 1, failed.Attempts)
		}
	})
}

func TestCloseEndsASourceOfTokensThatHangs(t *testing.T) {
	t.Parallel()
	everyWay(t, func(t *testing.T, address func(*daemon) string) {
		asked := make(chan struct{}, 1)
		c := newClient(t, address(startDaemon(t)), func(c *Config) {
			c.Token = func(ctx context.Context) (string, error) {
				asked <- struct{}{}
				<-ctx.Done()
				return "", ctx.Err()
			}
		})
		failed := make(chan error, 1)
		go func() { _, err := c.Write(t.Context(), weather("s", 1)...); failed <- err }()
		<-asked
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-failed, ErrClosed)
	})
}

// TestABalancerThatLostItsDaemonIsNotLeft: a proxy answers with its own reason.
func TestABalancerThatLostItsDaemonIsNotLeft(t *testing.T) {
	t.Parallel()
	first := newAnswers(t, say(http.StatusBadGateway, `{"code":"upstream","message":"m"}`), say(200, taken2))
	second := startDaemon(t)
	c := newClient(t, first.URL, func(c *Config) { c.Addresses = append(c.Addresses, second.http) })
	result, err := c.Write(t.Context(), weather("s", 2)...)
	require.NoError(t, err)
	assert.Equal(t, first.URL, result.Address, "the other does not know the key")
}
