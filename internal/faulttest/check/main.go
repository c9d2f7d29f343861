// Command check compares a producer's log with what a Brim daemon has stored:
//
//	go run ./internal/faulttest/check --log producers.ndjson --mongo-uri mongodb://… --stream readings
//
// The producers must have ended, and POST /flush have answered 200. Exit codes:
// 0 nothing is lost, doubled, invented or misshapen; 1 something is; 2 the check
// could not be made.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/faulttest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2) //nolint:forbidigo // this is main
	case !ok:
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		cfg      faulttest.CheckConfig
		path     = flags.String("log", "", "the producers' log, NDJSON")
		uri      = flags.String("mongo-uri", "mongodb://127.0.0.1:27017/", "where the readings are stored")
		database = flags.String("database", "brim", "MongoDB database")
	)
	flags.StringVar(&cfg.Stream, "stream", "readings", "stream, and name of its collection")
	flags.BoolVar(&cfg.TimeSeries, "timeseries", false, "the stream is a time-series collection")
	flags.IntVar(&cfg.MaxReadings, "bucket-max-readings", 0, "cap of a part; 0: not checked")
	flags.IntVar(&cfg.MaxBytes, "bucket-max-bytes", 0, "cap of a part in bytes; 0: not checked")
	if err := flags.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	file, err := os.Open(*path)
	if err != nil {
		return false, fmt.Errorf("open the log: %w", err)
	}
	defer file.Close()
	if cfg.Log, err = faulttest.ReadLog(file); err != nil {
		return false, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(*uri).SetAppName("brim-check").SetTimeout(10 * time.Minute))
	if err != nil {
		return false, fmt.Errorf("connect to MongoDB: %w", err)
	}
	defer func() { err = errors.Join(err, client.Disconnect(context.WithoutCancel(ctx))) }()
	cfg.Database = client.Database(*database)
	result, err := faulttest.Check(ctx, cfg)
	if err != nil {
		return false, err
	}
	fmt.Fprint(stdout, result.Report())
	return result.Wrong() == 0, nil
}
