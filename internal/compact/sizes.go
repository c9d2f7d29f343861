package compact

import (
	"context"
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// Sizes has the sizes of a collection on one member, from collStats.
type Sizes struct {
	Documents int64 `json:"documents"`
	Data      int64 `json:"data_bytes"`       // before compression
	File      int64 `json:"file_bytes"`       // of the collection's file
	Free      int64 `json:"free_bytes"`       // reusable bytes in it
	IndexFile int64 `json:"index_file_bytes"` // of the files of all its indexes
	IndexFree int64 `json:"index_free_bytes"` // reusable bytes in them
	// Removed is how many documents were removed since the server opened the file; 0 if unknown.
	Removed int64 `json:"removed"`
}

// Files returns the size of all files.
func (s Sizes) Files() int64 { return s.File + s.IndexFile }

// AllFree returns the free space in all files, the most that a compaction can return.
func (s Sizes) AllFree() int64 { return s.Free + s.IndexFree }

// FreeShare returns the share of the files that is free, 0 to 1.
func (s Sizes) FreeShare() float64 {
	if s.Files() == 0 {
		return 0
	}
	return float64(s.AllFree()) / float64(s.Files())
}

// pageShare and pageBytes bound the overhead of a file: a share of its documents' bytes, and a
// fixed amount.
const (
	pageShare = 0.25
	pageBytes = 1 << 20
)

// deleted returns a lower bound of the space of deleted documents that is not free yet. The actual
// value may be larger, because documents are compressed.
func (s Sizes) deleted() int64 {
	used := s.File - s.Free
	if used <= s.Data+int64(pageShare*float64(s.Data))+pageBytes {
		return 0
	}
	return used - s.Data
}

// whenReusable says when the space of deleted documents becomes free.
const whenReusable = "becomes reusable after the next checkpoint, within 60 s, and on a replica set once its history has expired, too (300 s, unless minSnapshotHistoryWindowInSeconds was changed); run this again then"

// Waits says when the space of deleted data that is not free yet becomes free; empty if there
// seems to be none.
func (s Sizes) Waits() string {
	switch n := s.deleted(); {
	case n > 0:
		return fmt.Sprintf("at least %s of the file is deleted data, which %s", bytes(n), whenReusable)
	case s.Removed > 0:
		return "data that was deleted within the last minutes " + whenReusable
	}
	return ""
}

const codeNamespaceNotFound = 26

// sizes reads the sizes from a member.
func (c *Compactor) sizes(ctx context.Context, m *Member) (Sizes, error) {
	var stats struct {
		Count       float64 `bson:"count"`
		Size        float64 `bson:"size"`
		StorageSize float64 `bson:"storageSize"`
		Free        float64 `bson:"freeStorageSize"`
		Indexes     float64 `bson:"totalIndexSize"`
		WiredTiger  struct {
			Cursor struct {
				Removed float64 `bson:"remove calls"`
			} `bson:"cursor"`
		} `bson:"wiredTiger"`
		Details map[string]struct {
			Blocks struct {
				Free float64 `bson:"file bytes available for reuse"`
			} `bson:"block-manager"`
		} `bson:"indexDetails"`
	}
	err := ask(ctx, m.client.Database(c.config.Database), bson.D{{Key: "collStats", Value: c.config.Collection}}, &stats)
	switch {
	case store.HasCode(err, codeNamespaceNotFound):
		return Sizes{}, ErrNoCollection
	case store.HasCode(err, codeUnauthorized):
		return Sizes{}, fmt.Errorf("the user is not allowed to run collStats; the roles read and dbAdmin on the database allow it: %w", err)
	case err != nil:
		return Sizes{}, fmt.Errorf("ask %s for the collection's sizes: %w", m.Host, err)
	case stats.StorageSize == 0: // one that does not exist has none in some versions
		return Sizes{}, ErrNoCollection
	}
	s := Sizes{
		Documents: int64(stats.Count), Data: int64(stats.Size), File: int64(stats.StorageSize), Free: int64(stats.Free),
		IndexFile: int64(stats.Indexes), Removed: int64(stats.WiredTiger.Cursor.Removed),
	}
	for _, one := range stats.Details {
		s.IndexFree += int64(one.Blocks.Free)
	}
	return s, nil
}

// diskUsed returns how many bytes of a member's file system are in use; NaN if unknown.
func (c *Compactor) diskUsed(ctx context.Context, m *Member) float64 {
	stats := struct {
		Used float64 `bson:"fsUsedSize"`
	}{math.NaN()}
	if err := ask(ctx, m.client.Database(c.config.Database), bson.D{{Key: "dbStats", Value: 1}}, &stats); err != nil {
		return math.NaN()
	}
	return stats.Used
}

// notWorthwhile returns why a compaction is not worthwhile; empty if it is.
func (c *Compactor) notWorthwhile(s Sizes) string {
	switch {
	case s.AllFree() < c.config.LeastBytes:
		return fmt.Sprintf("%s are free, and less than %s is not worth it (--free-bytes-at-least says otherwise; --force only overrides the check for a busy server)", bytes(s.AllFree()), bytes(c.config.LeastBytes))
	case s.FreeShare() < c.config.FreeAtLeast:
		return fmt.Sprintf("%s are free, %.1f %% of the files, and less than %g %% is not worth it (--free-at-least says otherwise; --force only overrides the check for a busy server)", bytes(s.AllFree()), 100*s.FreeShare(), 100*c.config.FreeAtLeast)
	}
	return ""
}
