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

	"golang.org/x/sync/errgroup"

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

// sendAll sends the load of all variants at once and returns what came of each.
func sendAll(ctx context.Context, o *options, d *daemon, stderr io.Writer) ([]*load.Result, error) {
	results := make([]*load.Result, len(variants()))
	ended := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		tellTime(o.duration, ended, stderr)
	}()
	group, ctx := errgroup.WithContext(ctx)
	for i, v := range variants() {
		group.Go(func() (err error) {
			results[i], err = send(ctx, o, d, v)
			return err
		})
	}
	err := group.Wait()
	close(ended)
	<-told
	return results, err
}

// send runs `brim load` against one stream.
func send(ctx context.Context, o *options, d *daemon, v variant) (*load.Result, error) {
	cmd := exec.CommandContext(ctx, o.brim, "load",
		"--target", "http://"+d.http, "--admin", d.admin, "--stream", v.stream,
		"--sensors", strconv.Itoa(o.sensors), "--interval", o.interval.String(),
		"--speedup", strconv.FormatFloat(o.speedup(), 'g', -1, 64), "--duration", o.duration.String(),
		"--batch", strconv.Itoa(readingsPerRequest), "--output", "json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("send load to %s: %w", v.stream, context.Cause(ctx))
		}
		return nil, fmt.Errorf("send load to %s: %w\n%s", v.stream, err, stderr.Bytes())
	}
	var r load.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("read what came of the load of %s: %w", v.stream, err)
	}
	if len(r.StoreByFill) == 0 {
		return nil, errors.New("the daemon told nothing of its writes")
	}
	return &r, nil
}

// tellTime says every ten seconds how far the load is.
func tellTime(total time.Duration, ended <-chan struct{}, stderr io.Writer) {
	began := time.Now()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if gone := time.Since(began).Round(time.Second); gone <= total {
				_, _ = fmt.Fprintf(stderr, "%v of %v: the buckets are %.0f %% full\n", gone, total, 100*gone.Seconds()/total.Seconds())
			}
		}
	}
}
