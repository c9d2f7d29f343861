// A gateway that sends measurements from standard input, one per line:
//
//	s-1 t 23.5
//
// It continues while no daemon can be reached, and reports at its end how much was
// delivered. Run it with
//
//	BRIM_TOKEN=… go run ./examples/go http://127.0.0.1:8430
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		slog.Error("send measurements", "err", err)
		os.Exit(1) //nolint:forbidigo,gocritic // main ends the process, and stop is of no use then
	}
}

// closeTime is how long the end waits for a daemon.
const closeTime = 30 * time.Second

// run sends what it reads from in to the daemons at the addresses.
func run(ctx context.Context, addresses []string, in io.Reader, out io.Writer) (err error) {
	config := client.Config{Addresses: addresses}
	if token := os.Getenv("BRIM_TOKEN"); token != "" {
		config.Token = client.Token(token)
	}
	c, err := client.New(config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b, err := c.NewBatcher(client.BatcherConfig{
		OnRefused: func(_ telemetry.Reading, r client.Refused) {
			slog.Warn("reading refused", "sensor", r.Sensor, "code", r.Code, "message", r.Message)
		},
		OnLost: func(readings []telemetry.Reading, err error) {
			slog.Error("readings lost", "readings", len(readings), "err", err)
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		// Not with ctx, which may have ended this.
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = errors.Join(err, b.Close(ctx))
		s := b.Stats()
		_, printErr := fmt.Fprintf(out, "%d delivered, %d refused, %d lost\n", s.Delivered, s.Refused, s.Lost)
		err = errors.Join(err, printErr)
	}()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r, err := parse(lines.Text())
		if err != nil {
			slog.Warn("skip a line", "err", err)
			continue
		}
		if err := b.Add(ctx, r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// parse reads a line of a sensor, a field and a number.
func parse(line string) (telemetry.Reading, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return telemetry.Reading{}, fmt.Errorf("line %q is not a sensor, a field and a number", line)
	}
	value, err := strconv.ParseFloat(words[2], 64)
	if err != nil {
		return telemetry.Reading{}, fmt.Errorf("line %q: %w", line, err)
	}
	return telemetry.Reading{Sensor: words[0], Fields: []telemetry.Field{{Name: words[1], Value: telemetry.FloatValue(value)}}}, nil
}
