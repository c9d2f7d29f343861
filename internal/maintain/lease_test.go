package maintain

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func claiming(db *mongo.Database) claimConfig {
	return claimConfig{Database: db, Stream: testStream, Kind: "recompress", To: "zstd", Lease: shortLease}
}

func TestWorkHasOneOwner(t *testing.T) {
	t.Parallel()
	db := database(t)
	first, err := claim(t.Context(), claiming(db))
	require.NoError(t, err)
	var busy *BusyError
	_, err = claim(t.Context(), claiming(db))
	require.ErrorAs(t, err, &busy)
	require.ErrorContains(t, err, "is at work on it")
	require.NoError(t, first.set(bson.D{{Key: "phase", Value: phaseCopy}}))
	first.end()

	other := claiming(db)
	other.To = "none"
	_, err = claim(t.Context(), other)
	require.ErrorAs(t, err, &busy)
	require.ErrorContains(t, err, "was begun and is in phase copy")
	second, err := claim(t.Context(), claiming(db))
	require.NoError(t, err)
	assert.Equal(t, phaseCopy, second.state.Phase, "it goes on where the first was")
	require.NoError(t, second.forget())
	second.end()
}

func TestDeadOwnerIsReplacedAtOnceAndSilentOneAfterItsLease(t *testing.T) {
	t.Parallel()
	db := database(t)
	ctx, kill := context.WithCancel(t.Context())
	first, err := claim(ctx, claiming(db))
	require.NoError(t, err)
	kill() // it gives no more signs of life
	first.beating.Wait()
	waited := false
	patient := claiming(db)
	patient.Tell = func(p Progress) { waited = waited || p.Phase == "wait" }
	second, err := claim(t.Context(), patient)
	require.NoError(t, err)
	assert.True(t, waited, "for all that is known, process %d may live", os.Getpid())
	require.ErrorIs(t, first.set(bson.D{{Key: "phase", Value: phaseDone}}), context.Canceled)

	bury(t, db)
	patient.Tell = func(p Progress) { assert.Fail(t, "it does not wait for a dead owner", p.Note) }
	third, err := claim(t.Context(), patient)
	require.NoError(t, err)
	require.ErrorIs(t, second.set(bson.D{{Key: "phase", Value: phaseDone}}), errLost)
	<-second.ctx.Done()
	require.ErrorIs(t, context.Cause(second.ctx), errLost)
	second.end()
	require.NoError(t, third.set(bson.D{{Key: "phase", Value: phaseCopy}}), "whoever lost the work does not give it back")
	third.end()
}

func TestThrottleHoldsItsRate(t *testing.T) {
	t.Parallel()
	limited := newThrottle(1 << 20)
	began := time.Now()
	limited.charge(200 << 10)
	require.NoError(t, limited.wait(t.Context(), 200<<10))
	// 400 KiB at 1 MiB/s, of which a tenth of a second's are free.
	assert.GreaterOrEqual(t, time.Since(began), 280*time.Millisecond)
	free := newThrottle(0)
	free.charge(1 << 60)
	require.NoError(t, free.wait(t.Context(), 1<<60))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, limited.wait(ctx, 1<<30), context.Canceled)
}

func TestPrintedCommandsCanBePasted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, to, end, want string }{
		{"recompress", "zstd", "", "brim recompress --to zstd --stream readings"},
		{"recompress", "zstd", "--abort", "brim recompress --stream readings --abort"}, // --to would begin something
		{"migrate", "1h", "", "brim migrate --granularity 1h --stream readings"},
		{"migrate", "1h", "--drop-old", "brim migrate --granularity 1h --stream readings --drop-old"},
		{"migrate", "timeseries", "--abort", "brim migrate --storage timeseries --stream readings --abort"},
	} {
		s := state{Stream: testStream, Kind: c.kind, To: c.to}
		assert.Equal(t, c.want, s.command(c.end))
	}
}
