package promapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/brim-telemetry/brim/internal/read"
)

// Shares and Visit let tests use what queries share.
type (
	Shares = shares
	Visit  = activeQuery
)

// NewShares is newShares.
func NewShares(most, readers int) *Shares {
	return newShares(most, readers, &scheduler{arriving: func() bool { return false }}, slog.New(slog.DiscardHandler))
}

// Shares returns what queries of the API share.
func (a *API) Shares() *Shares { return a.shares }

// Panic answers a request whose evaluation panics, and returns the recovered value.
func (a *API) Panic(w http.ResponseWriter, r *http.Request, with any) (recovered any) {
	defer func() { recovered = recover() }()
	x := &exchange{api: a, w: w, r: r, active: a.shares.register(client{})}
	defer a.shares.unregister(x.active)
	a.flights.answer(x, &endpoint{answer: func(*exchange, context.Context) (answer, error) { panic(with) }})
	return nil
}

// Arrive is arrive.
func (s *shares) Arrive(stream string) *Visit { return s.register(client{stream: stream}) }

// Leave is leave.
func (s *shares) Leave(v *Visit) { s.unregister(v) }

// Read returns the number of samples that a read found.
func (s *shares) Read(ctx context.Context, session *read.Session, v *Visit, sensor string, from, to int64, fields ...string) (samples int, joined bool, err error) {
	r, joined, err := s.read(ctx, session, v, sensor, readRange{from, to, fields})
	if err != nil {
		return 0, joined, err
	}
	for _, set := range r.sets {
		for _, col := range set.columns {
			samples += len(col.times)
		}
	}
	return samples, joined, nil
}

// Count returns the number of queries, of those that wait for the most awaited read, and
// of samples held.
func (s *shares) Count() (visits, joined, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.reads {
		for _, r := range list {
			joined = max(joined, r.joined)
		}
	}
	return len(s.active), joined, s.held
}
