package bucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestDroppedCollectionIsCreatedAgainWithItsOptions: no upsert creates one without options, and
// no knowledge about its parts is applied to the new one.
func TestDroppedCollectionIsCreatedAgainWithItsOptions(t *testing.T) {
	t.Parallel()
	db := connect(t)
	lost := make(chan struct{}, 1)
	s := open(t, db, Config{MaxReadings: 2, Compressor: store.Zstd, Retention: time.Hour, OnLost: func() { lost <- struct{}{} }})
	b := storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("a", 1, 2), storetest.Reading("a", 2, 3), storetest.Reading("a", 3, 4), storetest.Reading("a", 4, 5))
	pending := storetest.Pending(b, window)
	storetest.WriteAll(t, s, pending)
	require.Len(t, documents(t, db), 3, "the bucket is in its third part")

	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	more := storetest.Pending(storetest.Batch(t, "s1", 6, storetest.Reading("a", 5, 6), storetest.Reading("a", 6, 7), storetest.Reading("a", 7, 8)), window)
	more[0].State = pending[0].State
	s.Write(t.Context(), more)
	require.Equal(t, batch.Wait, more[0].Verdict, "the update made no collection")
	assert.Empty(t, documents(t, db))
	<-lost
	s.Write(t.Context(), more)
	assert.Equal(t, batch.Unsent, more[0].Verdict)

	require.NoError(t, s.Prepare(t.Context()))
	storetest.WriteAll(t, s, more)
	docs := documents(t, db)
	require.Len(t, docs, 2)
	assert.Equal(t, int32(2), docs[0]["count"])
	assert.Equal(t, int32(1), docs[1]["count"])
	assert.Equal(t, time.Hour+window, expiry(t, db))
	c := store.Collection{Database: db, Name: storetest.Stream, Compressor: store.Zstd}
	info, err := c.Lookup(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.CheckCompressor(info))
	assert.NotEmpty(t, info.Options.Lookup("storageEngine").Value)
}
