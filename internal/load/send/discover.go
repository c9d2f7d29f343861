package send

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

// discoverTimeout is how long a daemon may take to tell about itself.
const discoverTimeout = 10 * time.Second

// What may be at an address instead of the daemon's side that was expected.
var (
	ErrNoStreams = errors.New("it does not know /v1/streams")
	ErrNotHTTP   = errors.New("it does not speak HTTP")
	ErrNotGRPC   = errors.New("it does not speak gRPC")
)

// ErrUnauthorized is that of a daemon which does not know who asks.
var ErrUnauthorized = errors.New("it asks who is calling")

// Discover asks the daemon whose HTTP side is at base (http://host:port) about
// a stream; an empty name is the default stream. The client's connections are
// closed.
func Discover(ctx context.Context, client *http.Client, base, stream string) (load.Stream, error) {
	t, err := parseTarget(base)
	if err != nil {
		return load.Stream{}, err
	}
	if t.grpc {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: that is answered over http and https only", t)
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	about, err := getStreams(ctx, client, strings.TrimSuffix(base, "/")+"/v1/streams")
	if errors.Is(err, context.DeadlineExceeded) {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: no answer came within %s", t, discoverTimeout)
	}
	if err != nil {
		return load.Stream{}, fmt.Errorf("ask %s about its streams: %w", t, err)
	}
	if stream == "" {
		stream = about.Default
	}
	var names []string
	for _, s := range about.Streams {
		if s.Name == stream {
			return load.Stream{Name: s.Name, Storage: s.Storage, GranularitySeconds: s.GranularitySeconds}, nil
		}
		names = append(names, s.Name)
	}
	return load.Stream{}, fmt.Errorf("the daemon at %s has no stream %q; it has: %s", t, stream, strings.Join(names, ", "))
}

// streams is what a daemon says of its streams, as far as it is asked here.
type streams struct {
	Default string `json:"default"`
	Streams []struct {
		Name               string `json:"name"`
		Storage            string `json:"storage"`
		GranularitySeconds int    `json:"granularity_seconds"`
	} `json:"streams"`
}

// SpeaksNoHTTP reports whether an HTTP client's error says that what it asked
// is something else: the answer is not HTTP, or the other side spoke first, as
// gRPC does, and was heard before the question was written. Neither has a type.
func SpeaksNoHTTP(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "malformed HTTP") || strings.Contains(err.Error(), "readLoopPeekFail"))
}

func getStreams(ctx context.Context, client *http.Client, url string) (*streams, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true // one question
	resp, err := client.Do(req)
	if SpeaksNoHTTP(err) {
		return nil, fmt.Errorf("%w: %w", ErrNotHTTP, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w: the answer is 404: %s", ErrNoStreams, problemOf(resp.StatusCode, body))
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("%w: the answer is 401: %s", ErrUnauthorized, problemOf(resp.StatusCode, body))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %d: %s", resp.StatusCode, problemOf(resp.StatusCode, body))
	}
	var about streams
	if err := json.Unmarshal(body, &about); err != nil {
		return nil, fmt.Errorf("the answer is not one that a Brim daemon gives: %w", err)
	}
	if about.Default == "" || len(about.Streams) == 0 {
		return nil, errors.New("the answer names no streams, as a Brim daemon's would")
	}
	return &about, nil
}
