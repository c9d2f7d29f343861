// Command produce sends marked readings to a Brim daemon, and logs what it
// attempts and what it is answered, for the command check:
//
//	go run ./internal/faulttest/produce --url http://127.0.0.1:8430 --log producers.ndjson --duration 1m --keys
//
// Meanwhile, make fail whatever can. It ends after the duration or with Ctrl-C.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "produce:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("produce", flag.ContinueOnError)
	flags.SetOutput(stderr)
	cfg := faulttest.ProducerConfig{Step: 200 * time.Millisecond, Late: time.Minute}
	var (
		path      = flags.String("log", "producers.ndjson", "file that gets the log; it must not exist")
		producers = flags.Int("producers", 4, "how many send at once")
		duration  = flags.Duration("duration", time.Minute, "how long")
	)
	flags.StringVar(&cfg.URL, "url", "http://127.0.0.1:8430", "the daemon's data listener")
	flags.StringVar(&cfg.Stream, "stream", "", "stream; empty: the default one")
	flags.StringVar(&cfg.Ack, "ack", "", "journaled or stored; empty: the daemon's default")
	flags.IntVar(&cfg.Batch, "batch", 10, "readings in a request")
	flags.IntVar(&cfg.Sensors, "sensors", 50, "sensors that all producers share")
	flags.Float64Var(&cfg.Rate, "rate", 1000, "readings a second; 0: as fast as they are answered")
	flags.BoolVar(&cfg.Keys, "keys", false, "repeat each request under its Idempotency-Key until its outcome is known")
	flags.Float64Var(&cfg.Repeat, "repeat", 0, "share of requests sent twice at once; needs --keys")
	flags.Float64Var(&cfg.Poison, "poison", 0, "share of readings that break a rule")
	flags.BoolVar(&cfg.LineProtocol, "line-protocol", false, "line protocol in place of NDJSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if cfg.Repeat > 0 && !cfg.Keys {
		return errors.New("--repeat needs --keys: without them a repeated request is another one")
	}
	file, err := os.OpenFile(*path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	out := bufio.NewWriter(file)
	cfg.Log = faulttest.NewLog(out)
	cfg.Seed = uint64(time.Now().UnixNano()) // keys must be new in every run
	p := faulttest.Produce(*producers, cfg)
	timer := time.NewTimer(*duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	p.Stop()
	fmt.Fprintln(stdout, p.Counts.String())
	return errors.Join(cfg.Log.Err(), out.Flush(), file.Close())
}
