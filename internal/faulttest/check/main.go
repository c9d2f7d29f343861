// Command check sends marked readings to a Brim daemon whose stream is empty, and then says
// which were lost, stored twice, or never sent:
//
//	go run ./internal/faulttest/check --mongo-uri mongodb://… --duration 1m --keys
//
// Meanwhile, inject failures. After the duration or Ctrl-C, it makes the daemon store
// everything, and compares. Exit codes: 0 nothing is lost, duplicated, invented or
// malformed; 1 something is; 2 the check failed to run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

func main() {
	ok, err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2) //nolint:forbidigo // this is main
	case !ok:
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string, stdout, stderr io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	log := faulttest.NewLog()
	check := faulttest.CheckConfig{Log: log}
	send := faulttest.ProducerConfig{Log: log, Step: 200 * time.Millisecond, Late: time.Minute, Seed: uint64(time.Now().UnixNano())} // keys must be new in every run
	var (
		producers = flags.Int("producers", 4, "how many send at once")
		duration  = flags.Duration("duration", time.Minute, "how long")
		admin     = flags.String("admin", "http://127.0.0.1:8432", "the daemon's admin listener")
		uri       = flags.String("mongo-uri", "mongodb://127.0.0.1:27017/", "where the readings are stored")
		database  = flags.String("database", "brim", "MongoDB database")
	)
	flags.StringVar(&send.URL, "url", "http://127.0.0.1:8430", "the daemon's data listener")
	flags.StringVar(&check.Stream, "stream", "readings", "stream, and name of its collection")
	flags.StringVar(&send.Ack, "ack", "", "journaled or stored; empty: the daemon's default")
	flags.IntVar(&send.Batch, "batch", 10, "readings in a request")
	flags.IntVar(&send.Sensors, "sensors", 50, "sensors that all producers share")
	flags.Float64Var(&send.Rate, "rate", 1000, "readings a second; 0: as fast as they are answered")
	flags.BoolVar(&send.Keys, "keys", false, "repeat each request under its Idempotency-Key until its outcome is known")
	flags.Float64Var(&send.Repeat, "repeat", 0, "share of requests sent twice at once; needs --keys")
	flags.Float64Var(&send.Poison, "poison", 0, "share of readings that break a rule")
	flags.BoolVar(&send.LineProtocol, "line-protocol", false, "line protocol in place of NDJSON")
	flags.IntVar(&check.MaxReadings, "bucket-max-readings", 0, "cap of a part; 0: not checked")
	flags.IntVar(&check.MaxBytes, "bucket-max-bytes", 0, "cap of a part in bytes; 0: not checked")
	if err := flags.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	if send.Repeat > 0 && !send.Keys {
		return false, errors.New("--repeat needs --keys: without them a repeated request is another one")
	}
	send.Stream = check.Stream
	client, err := mongo.Connect(options.Client().ApplyURI(*uri).SetAppName("brim-check").SetTimeout(10 * time.Minute))
	if err != nil {
		return false, fmt.Errorf("connect to MongoDB: %w", err)
	}
	defer func() { err = errors.Join(err, client.Disconnect(context.Background())) }()
	check.Database = client.Database(*database)

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	p := faulttest.Produce(*producers, send)
	select {
	case <-time.After(*duration):
	case <-interrupted.Done():
	}
	stop() // another interrupt ends the check
	p.Stop()
	fmt.Fprintln(stdout, p.Counts.String())
	resp, err := http.Post(*admin+"/flush?timeout=60s", "", http.NoBody)
	if err != nil {
		return false, fmt.Errorf("flush the daemon: %w", err)
	}
	_ = resp.Body.Close() // only read
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("flush the daemon: it answers %s", resp.Status)
	}
	result, err := faulttest.Check(context.Background(), check)
	if err != nil {
		return false, err
	}
	fmt.Fprint(stdout, result.Report())
	return result.Wrong() == 0, nil
}
