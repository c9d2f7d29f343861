package daemon

import (
	"context"
	"strings"

	"github.com/brim-telemetry/brim/internal/store"
)

// tellStrangers says once which streams the database has that this daemon does
// not: those that were taken out of its file, or another daemon's. They are left
// as they are, and so is their retention.
func (s *storage) tellStrangers(ctx context.Context) {
	if s.conn == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var known []string
	for name := range s.homes {
		known = append(known, name)
	}
	found, err := store.Strangers(ctx, s.conn.Database(), known)
	if err != nil {
		s.log.Debug("look for streams that are not configured", "err", err)
		return
	}
	if len(found) > 0 {
		s.log.Info("the database has streams that are not configured here; their collections are left as they are", "streams", strings.Join(found, ", "))
	}
}
