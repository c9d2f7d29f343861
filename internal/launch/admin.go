package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// ErrNotInTime means that the daemon could not finish a request in the given time.
var ErrNotInTime = errors.New("the daemon did not finish in time")

// Get reads a page of the admin listener as JSON.
func (d *Daemon) Get(ctx context.Context, path string, into any) error {
	return d.Ask(ctx, http.MethodGet, path, func(answer io.Reader) error { return json.NewDecoder(answer).Decode(into) })
}

// Ask makes a request to the admin listener.
func (d *Daemon) Ask(ctx context.Context, method, path string, read func(answer io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, method, d.url(d.Admin)+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the daemon: %w", err)
	}
	req.Close = true // nothing is left open beside a measurement
	resp, err := cmp.Or(d.client, http.DefaultClient).Do(req)
	if err != nil {
		return fmt.Errorf("ask the daemon: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode == http.StatusGatewayTimeout {
		return fmt.Errorf("%s %s: %w", method, path, ErrNotInTime)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // as far as it comes
		return fmt.Errorf("%s %s: the answer is %s %s", method, path, resp.Status, text)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// Flush returns when all readings that the daemon has accepted are stored, or
// ErrNotInTime.
func (d *Daemon) Flush(ctx context.Context, most time.Duration) error {
	return d.Ask(ctx, http.MethodPost, "/flush?timeout="+most.String(), func(io.Reader) error { return nil })
}

// Look reads the daemon's metrics.
func (d *Daemon) Look(ctx context.Context) (scrape.Sample, error) {
	return scrape.Get(ctx, cmp.Or(d.client, http.DefaultClient), d.url(d.Admin)+"/metrics")
}

// url returns the URL of a listener.
func (d *Daemon) url(address string) string {
	if d.CA != "" {
		return "https://" + address
	}
	return "http://" + address
}
