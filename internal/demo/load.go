package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
)

// A variant is one way of storing the same readings.
type variant struct {
	stream string
	title  string
}

func variants() []variant {
	return []variant{
		{"single", "one reading per update"},
		{"merged", "merged updates"},
		{"timeseries", "time series"},
	}
}

// readingsPerRequest keeps the requests few, so that the machine is busy with
// what is shown and not with HTTP.
const readingsPerRequest = 20

// An outcome is what came of the load of one variant.
type outcome struct {
	*load.Result
	Saturated string        `json:"saturated_why"` // empty: it was not
	behind    time.Duration // until all was stored, after the last reading was due
}

// sendAll sends the load of each variant and returns what came of it.
func sendAll(ctx context.Context, o *options, d *launch.Daemon, stderr io.Writer) ([]outcome, error) {
	results := make([]outcome, len(variants()))
	for i, v := range variants() {
		_, _ = fmt.Fprintf(stderr, "%d of %d  %s, %v\n", i+1, len(results), v.title, o.each())
		began := time.Now()
		r, err := send(ctx, o, d, v) // it ends when the daemon has stored all
		if err != nil {
			return nil, err
		}
		r.behind = max(0, time.Since(began)-o.each())
		results[i] = *r
	}
	return results, nil
}

// send runs `brim load` against one stream.
func send(ctx context.Context, o *options, d *launch.Daemon, v variant) (*outcome, error) {
	cmd := exec.CommandContext(ctx, o.brim, "load",
		"--target", "http://"+d.HTTP, "--admin", d.Admin, "--stream", v.stream,
		"--sensors", strconv.Itoa(o.sensors), "--interval", o.interval.String(),
		"--speedup", strconv.FormatFloat(o.speedup(), 'g', -1, 64), "--duration", o.each().String(),
		"--batch", strconv.Itoa(readingsPerRequest), "--output", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("send load to %s: %w", v.stream, context.Cause(ctx))
		}
		return nil, fmt.Errorf("send load to %s: %w\n%s", v.stream, err, stderr.Bytes())
	}
	var r outcome
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("read what came of the load of %s: %w", v.stream, err)
	}
	if r.Result == nil || len(r.StoreByFill) == 0 {
		return nil, errors.New("the daemon told nothing of its writes")
	}
	return &r, nil
}
