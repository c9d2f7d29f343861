package access

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func none(func(string) bool) {}

func of(sensors ...string) iter.Seq[string] { return slices.Values(sensors) }

// fleet yields the sensors from the first number up to, but not including, the last.
func fleet(from, to int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := from; n < to; n++ {
			if !yield(fmt.Sprintf("s-%d", n)) {
				return
			}
		}
	}
}

// quotaOf returns an identity with a quota, and its clock.
func quotaOf(t testing.TB, q Quota) (*Identity, *clock) {
	t.Helper()
	c := newClock()
	g, err := Open(Config{Default: q, Now: c.now})
	require.NoError(t, err)
	i, err := g.Identify(Credentials{})
	require.NoError(t, err)
	return i, c
}

func TestRequestQuota(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte("identities:\n"+entry("north", northToken, "scopes: [ingest]", "quota: {requests_per_second: 2}")+entry("south", "brim_south")), 0o600))
	g, err := Open(Config{Path: path, Now: c.now})
	require.NoError(t, err)
	ask := func() error { _, err := g.Identify(Credentials{Secret: northToken}); return err }

	require.NoError(t, ask())
	i, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	refusal := wantRefusal(t, ask(), telemetry.Quota, codeRequests)
	assert.Contains(t, refusal.Message, "north is 2 requests a second")
	wantRefusal(t, Recheck(With(t.Context(), i)), telemetry.Quota, codeRequests)
	_, err = g.Identify(Credentials{Secret: "brim_south"})
	require.NoError(t, err, "another one's quota is not touched")

	c.pass(refusal.RetryAfter)
	require.NoError(t, Recheck(With(t.Context(), i)), "a message of a stream is a request")
	wantRefusal(t, ask(), telemetry.Quota, codeRequests)
	c.pass(time.Minute)
	require.NoError(t, ask())
	require.NoError(t, ask())
	wantRefusal(t, ask(), telemetry.Quota, codeRequests)
}

func TestRequestQuotaWithoutAuthentication(t *testing.T) {
	t.Parallel()
	g, err := Open(Config{Default: Quota{RequestsPerSecond: 1}, Now: newClock().now})
	require.NoError(t, err)
	_, err = g.Identify(Credentials{})
	require.NoError(t, err)
	_, err = g.Identify(Credentials{})
	assert.Contains(t, wantRefusal(t, err, telemetry.Quota, codeRequests).Message, "all clients together")
}

func TestReadingQuota(t *testing.T) {
	t.Parallel()
	i, c := quotaOf(t, Quota{ReadingsPerSecond: 100})
	for range 100 {
		require.NoError(t, i.Admit(1, none))
	}
	refusal := wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
	assert.Contains(t, refusal.Message, "100 readings a second")
	assert.Equal(t, 100*time.Millisecond, refusal.RetryAfter)
	c.pass(refusal.RetryAfter)
	for range 10 {
		require.NoError(t, i.Admit(1, none), "what a tenth of a second brings")
	}
	wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)

	// A request for more than a second's worth passes, and is paid for afterwards.
	c.pass(time.Minute)
	require.NoError(t, i.Admit(10_000, none))
	refusal = wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
	assert.InDelta(t, 99, refusal.RetryAfter.Seconds(), 0.1)
	c.pass(refusal.RetryAfter - time.Second)
	wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
	c.pass(time.Second)
	require.NoError(t, i.Admit(1, none), "it passes after Retry-After")

	i.Refund(1_000_000)
	require.NoError(t, i.Admit(101, none))
	wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
}

func TestQuotaBelowOnePerSecond(t *testing.T) {
	t.Parallel()
	i, c := quotaOf(t, Quota{ReadingsPerSecond: 0.1})
	for range 3 {
		require.NoError(t, i.Admit(1, none))
		refusal := wantRefusal(t, i.Admit(1, none), telemetry.Quota, codeReadings)
		c.pass(9 * time.Second)
		assert.LessOrEqual(t, refusal.RetryAfter, 10*time.Second)
		c.pass(time.Second)
	}
}

// In any period, no more is used than the rate, one second's worth and one request.
func TestReadingQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		rate := rapid.IntRange(1, 1000).Draw(r, "rate")
		i, c := quotaOf(t, Quota{ReadingsPerSecond: float64(rate)})
		start, taken, largest := c.now(), 0, 0
		for range rapid.IntRange(1, 50).Draw(r, "requests") {
			n := rapid.IntRange(1, 3000).Draw(r, "readings")
			if err := i.Admit(n, none); err == nil {
				taken, largest = taken+n, max(largest, n)
			}
			c.pass(time.Duration(rapid.IntRange(0, 3000).Draw(r, "ms")) * time.Millisecond)
			if most := float64(rate)*(c.now().Sub(start).Seconds()+1) + float64(largest); float64(taken) > most {
				r.Fatalf("took %d of %f", taken, most)
			}
		}
	})
}

func TestNewSensorQuota(t *testing.T) {
	t.Parallel()
	i, c := quotaOf(t, Quota{NewSensorsPerSecond: 10})
	require.NoError(t, i.Admit(10, fleet(0, 10)))
	refusal := wantRefusal(t, i.Admit(3, of("s-1", "new", "s-2")), telemetry.Quota, codeNewSensors)
	assert.Contains(t, refusal.Message, "10 new sensors a second")
	require.NoError(t, i.Admit(10, fleet(0, 10)), "sensors that are known go on")
	c.pass(refusal.RetryAfter)
	require.NoError(t, i.Admit(1, of("new", "new", "new")), "and it counts once")
	c.pass(59 * time.Minute)
	require.NoError(t, i.Admit(5, fleet(0, 5)))
	c.pass(59 * time.Minute)
	require.NoError(t, i.Admit(5, fleet(0, 5)))
	assert.Len(t, i.usage.sensors.last, 5, "those that nothing came from are forgotten")
}

func TestActiveSensorQuota(t *testing.T) {
	t.Parallel()
	i, c := quotaOf(t, Quota{ActiveSensors: 100})
	require.NoError(t, i.Admit(60, fleet(0, 60)))
	c.pass(10 * time.Minute)
	wantRefusal(t, i.Admit(41, fleet(60, 101)), telemetry.Quota, codeActive)
	require.NoError(t, i.Admit(40, fleet(60, 100)), "a request that was refused took nothing")
	refusal := wantRefusal(t, i.Admit(2, of("s-1", "s-100")), telemetry.Quota, codeActive)
	assert.Contains(t, refusal.Message, "100 sensors in an hour")
	assert.InDelta(t, 50*60, refusal.RetryAfter.Seconds(), 60, "when the first are an hour old")
	assert.Equal(t, longestWait, wantRefusal(t, i.Admit(1000, fleet(1000, 2000)), telemetry.Quota, codeActive).RetryAfter)
	require.NoError(t, i.Admit(100, fleet(0, 100)), "those that there are go on")
	c.pass(30 * time.Minute)
	require.NoError(t, i.Admit(10, fleet(0, 10)))
	c.pass(31 * time.Minute)
	require.NoError(t, i.Admit(90, fleet(200, 290)), "others take the place of those that fell silent")
	assert.Len(t, i.usage.sensors.last, 100, "no more than the quota is remembered")
	wantRefusal(t, i.Admit(1, of("one-more")), telemetry.Quota, codeActive)
}

func TestRefusedRequestUsesNoQuota(t *testing.T) {
	t.Parallel()
	i, _ := quotaOf(t, Quota{ReadingsPerSecond: 100, NewSensorsPerSecond: 1000, ActiveSensors: 5})
	require.NoError(t, i.Admit(1, fleet(0, 5)))
	readings, fresh := i.usage.readings.level, i.usage.newSensors.level
	for range 1000 {
		wantRefusal(t, i.Admit(50, fleet(0, 6)), telemetry.Quota, codeActive)
	}
	assert.Equal(t, readings, i.usage.readings.level)
	assert.Equal(t, fresh, i.usage.newSensors.level)
	assert.Len(t, i.usage.sensors.last, 5)
}

// Counting by minutes gives the same as a simple set of sensors.
func TestSensorsAreActiveForAnHour(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(r, "quota")
		i, c := quotaOf(t, Quota{ActiveSensors: float64(most)})
		model := make(map[string]int64)
		for range rapid.IntRange(1, 60).Draw(r, "requests") {
			names := rapid.SliceOfN(rapid.StringMatching(`[a-e][a-e]`), 1, 8).Draw(r, "sensors")
			now, after := minuteOf(c.now()), make(map[string]int64)
			for s, m := range model {
				if m > now-activeMinutes {
					after[s] = m
				}
			}
			active := len(after)
			for _, s := range names {
				after[s] = now
			}
			pass := len(after) <= most || len(after) == active
			if err := i.Admit(len(names), of(names...)); (err == nil) != pass {
				r.Fatalf("admitted %v of %v: %v", names, model, err)
			}
			if pass {
				model = after
			}
			if n := len(i.usage.sensors.last); n > most {
				r.Fatalf("%d are remembered of %d", n, most)
			}
			c.pass(time.Duration(rapid.IntRange(0, 40).Draw(r, "minutes")) * time.Minute)
		}
	})
}

func TestSensorsAreNotReadWithoutSensorQuota(t *testing.T) {
	t.Parallel()
	i, _ := quotaOf(t, Quota{ReadingsPerSecond: 1e9})
	require.NoError(t, i.Admit(1, func(func(string) bool) { t.Error("the sensors were asked for") }))
	assert.Empty(t, i.usage.sensors.last)
}

func TestIdentifyAndAdmitDoNotAllocate(t *testing.T) {
	g := guardOf(t, entry("north", northToken, "scopes: [ingest]", "quota: {readings_per_second: 1000000000, new_sensors_per_second: 1000000, active_sensors: 100000}"))
	i, err := g.Identify(Credentials{Secret: northToken})
	require.NoError(t, err)
	names := slices.Collect(fleet(0, 1000))
	require.NoError(t, i.Admit(1000, slices.Values(names)))
	n := testing.AllocsPerRun(100, func() {
		who, err := g.Identify(Credentials{Secret: northToken})
		if err != nil || who.Require(Ingest) != nil || who.Check() != nil {
			t.Error(err)
		}
		if err := who.Admit(len(names), slices.Values(names)); err != nil {
			t.Error(err)
		}
	})
	if !brimtest.Race { // the race detector makes pools forget
		assert.Less(t, n, 1.0)
	}
}

func BenchmarkIdentify(b *testing.B) {
	path := filepath.Join(b.TempDir(), "access.yaml")
	token, err := NewToken()
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(path, []byte("identities:\n"+entry("north", token)), 0o600))
	g, err := Open(Config{Path: path})
	require.NoError(b, err)
	for name, secret := range map[string]string{"known": token, "unknown": strings.Repeat("x", len(token))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = g.Identify(Credentials{Secret: secret})
			}
		})
	}
	i, err := g.Identify(Credentials{Secret: token})
	require.NoError(b, err)
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := errors.Join(i.Check(), i.Require(Ingest)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAdmit(b *testing.B) {
	for _, size := range []int{1, 1000} {
		names := slices.Collect(fleet(0, size))
		for _, c := range []struct {
			name  string
			quota Quota
		}{
			{"none", Quota{}},
			{"readings", Quota{ReadingsPerSecond: MaxRate}},
			{"sensors", Quota{ReadingsPerSecond: MaxRate, NewSensorsPerSecond: MaxRate, ActiveSensors: 100_000}},
		} {
			b.Run(fmt.Sprintf("%d/%s", size, c.name), func(b *testing.B) {
				g, err := Open(Config{Default: c.quota})
				require.NoError(b, err)
				i, err := g.Identify(Credentials{})
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					if err := i.Admit(0, slices.Values(names)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A sender named by the configuration needs no credentials, is charged for the requests
// that it forwards, and gets a refund for those it repeats.
func TestNamedIdentity(t *testing.T) {
	t.Parallel()
	g := guardOf(t, entry("meters", northToken, "scopes: [ingest]", "expires: "+newClock().now().Add(time.Minute).UTC().Format(time.RFC3339), "quota: {requests_per_second: 10}"))
	i, err := g.Named("meters", 30)
	require.NoError(t, err)
	same, err := g.Identify(Credentials{Secret: northToken})
	wantRefusal(t, err, telemetry.Quota, codeRequests)
	assert.Nil(t, same)
	refusal := wantRefusal(t, func() error { _, err := g.Named("meters", 1); return err }(), telemetry.Quota, codeRequests)
	assert.Greater(t, refusal.RetryAfter, 2*time.Second, "30 requests less the burst of 10")
	i.RefundRequests(30)
	_, err = g.Named("meters", 1)
	require.NoError(t, err)

	all, err := g.Named("", 1_000_000)
	require.NoError(t, err, "a sender without a name has no quota")
	require.NoError(t, all.Require(Ingest))
	_, err = g.Named("nobody", 1)
	wantRefusal(t, err, telemetry.Unauthenticated, codeUnknown)
	g.clock.pass(2 * time.Minute)
	_, err = g.Named("meters", 1)
	wantRefusal(t, err, telemetry.Unauthenticated, codeExpired)
	g.write(t, entry("other", "brim_other"))
	_, err = g.Named("meters", 1)
	wantRefusal(t, err, telemetry.Unauthenticated, codeUnknown)

	open, err := (*Guard)(nil).Named("", 1)
	require.NoError(t, err)
	require.NoError(t, open.Admit(1_000_000, none))
	limited, err := Open(Config{Default: Quota{RequestsPerSecond: 2}, Now: newClock().now})
	require.NoError(t, err)
	_, err = limited.Named("", 3)
	require.NoError(t, err)
	_, err = limited.Identify(Credentials{})
	wantRefusal(t, err, telemetry.Quota, codeRequests)
}
