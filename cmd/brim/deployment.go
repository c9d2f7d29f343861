package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/crash"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
)

// A deployment is the MongoDB, with its streams, that a command inspects or changes.
type deployment struct {
	uri        string // may contain a secret
	database   string
	streams    []daemon.Stream // from the daemon, or else from the configuration
	admin      string          // of a daemon, HOST:PORT or https://HOST:PORT
	caller     *caller
	thresholds string         // file of the doctor's thresholds; empty: the built-in ones
	daemon     *daemon.Status // status of the daemon, if it writes to this MongoDB; nil: there is none
	chosen     string         // name of the stream that was asked for; empty: the default one
}

// deploymentFlags adds the flags that select a deployment. They are the daemon's own, so that its
// environment and configuration file can be used. Call the result after the flags are parsed.
func deploymentFlags(flags *pflag.FlagSet) func(context.Context, *process) (*deployment, error) {
	load := settingFlags(flags,
		[2]string{daemon.UriSetting, "MongoDB; empty: that of the daemon at --admin"},
		[2]string{daemon.UriFileSetting, "file that contains the URI; a password on the command line would be visible in the process list"},
		[2]string{"database"}, [2]string{"stream", "the stream"})
	var admin string
	flagAdder(flags)("admin", localAdmin, "HOST:PORT", "a daemon's admin listener, which tells its MongoDB and its streams; https://HOST:PORT with TLS", adminAddress(&admin))
	access := clientFlags(flags)
	return func(ctx context.Context, p *process) (*deployment, error) {
		c, err := load(p)
		if err != nil {
			return nil, err
		}
		caller, err := access(p)
		if err != nil {
			return nil, err
		}
		at := admin
		if !flags.Changed("admin") {
			at = c.AdminAddr
			if c.TLSCert != "" { // the configuration is the daemon's own
				at = schemeTLS + at
			}
		}
		out, err := caller.findDeployment(ctx, c, at)
		if database := flags.Lookup("database"); err == nil && out.database != c.Database && (database.Changed || c.Database != database.DefValue) {
			return nil, config.Usage(fmt.Errorf("the database is set to %q, but the daemon at %s writes to %q; omit --database (%s), or add --mongo-uri",
				c.Database, at, out.database, daemon.Setting{Name: "database"}.Variable()))
		}
		if err == nil && flags.Changed("stream") {
			out.chosen = flags.Lookup("stream").Value.String()
		}
		return out, err
	}
}

// findDeployment asks the daemon for what is missing in the configuration.
func (c *caller) findDeployment(ctx context.Context, cfg *daemon.Config, admin string) (*deployment, error) {
	s := &deployment{uri: cfg.MongoURI, database: cfg.Database, streams: cfg.Streams, admin: admin, caller: c, chosen: cfg.Default.Name, thresholds: cfg.Thresholds}
	about, err := c.askStatus(ctx, admin)
	variable := daemon.Setting{Name: daemon.UriSetting}.Variable()
	switch {
	case s.uri != "" && (err != nil || !isAt(about, s.uri) || about.Database != s.database):
		return s, nil //nolint:nilerr // there is no daemon of this MongoDB
	case err != nil:
		return nil, fmt.Errorf("no --mongo-uri given, and no daemon to get it from: %w", err)
	case about.MongoURI == "":
		return nil, fmt.Errorf("the daemon at %s stores nothing in MongoDB yet, or not at all; name a MongoDB by --mongo-uri", admin)
	case s.uri == "" && about.Mongod == nil && strings.Contains(about.MongoURI, config.Masked):
		return nil, fmt.Errorf("the daemon at %s does not tell the password of its MongoDB; give its --mongo-uri (%s), or its --config", admin, variable)
	case s.uri == "":
		if s.uri, err = reachableURI(about); err != nil {
			return nil, fmt.Errorf("the embedded MongoDB of the daemon at %s requires a password: %w, or give --mongo-uri (%s)", admin, err, variable)
		}
		s.database = about.Database
	}
	s.daemon, s.chosen = about, ""
	for _, one := range about.Streams {
		if one.Default {
			s.chosen = one.Name
		}
	}
	s.streams, err = streamsOf(about)
	return s, err
}

// isAt reports whether the daemon writes to the MongoDB at a URI. An embedded MongoDB has other
// users in addition to the daemon's.
func isAt(s *daemon.Status, uri string) bool {
	if s.Mongod != nil {
		return config.Deployment(s.MongoURI) == config.Deployment(uri)
	}
	return s.MongoURI == config.MaskURI(uri)
}

// reachableURI returns the daemon's URI. For an embedded MongoDB, it includes the password from
// the file next to its data.
func reachableURI(s *daemon.Status) (string, error) {
	if s.Mongod == nil || !s.Mongod.Auth {
		return s.MongoURI, nil
	}
	path := s.Mongod.URIFile
	text, err := os.ReadFile(path)
	switch uri := strings.TrimSpace(string(text)); {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("it is in %s, which only the user that runs the daemon may read; run this command as that user", path)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("it is in %s of the daemon's machine, which does not exist here; run this command there", path)
	case err != nil:
		return "", fmt.Errorf("read it from the file that the daemon names: %w", err)
	case config.Deployment(uri) != config.Deployment(s.MongoURI):
		return "", fmt.Errorf("what is in %s is not the URI of %s; is the file of another machine? Run this command on the daemon's", path, s.MongoURI)
	default:
		return uri, nil
	}
}

// streamsOf returns the daemon's streams.
func streamsOf(s *daemon.Status) ([]daemon.Stream, error) {
	out := make([]daemon.Stream, 0, len(s.Streams))
	for _, one := range s.Streams {
		granularity := time.Duration(one.GranularitySeconds) * time.Second
		if one.Name == "" || granularity <= 0 {
			return nil, errors.New("the daemon does not tell its streams: is it of another version?")
		}
		out = append(out, daemon.Stream{
			Name: one.Name, Storage: store.Storage(one.Storage), Granularity: granularity, BucketFormat: store.Format(one.BucketFormat),
			BucketMaxReadings: one.BucketMaxReadings, BucketMaxBytes: one.BucketMaxBytes, MaxReadingsPerUpdate: one.MaxReadingsPerUpdate,
			Compressor: store.Compressor(one.Compressor), Retention: time.Duration(one.RetentionSeconds) * time.Second,
		})
	}
	return out, nil
}

// stream returns the selected stream; from is the flag or argument that selects it.
func (s *deployment) stream(from string) (daemon.Stream, error) {
	names := make([]string, 0, len(s.streams))
	for _, one := range s.streams {
		if one.Name == s.chosen {
			return one, nil
		}
		names = append(names, one.Name)
	}
	return daemon.Stream{}, config.Usage(fmt.Errorf("%s: there is no stream %q%s; allowed: %s", from, s.chosen, config.DidYouMean("", s.chosen, names), strings.Join(names, ", ")))
}

// stored is like stream, and refuses a stream without collections.
func (s *deployment) stored(from string) (daemon.Stream, error) {
	one, err := s.stream(from)
	if err == nil && one.Storage == store.Memory {
		err = config.Usage(fmt.Errorf("stream %s is stored in memory: it has no collections in MongoDB", one.Name))
	}
	return one, err
}

// connect prepares a connection with the same concerns as the daemon's. Its application name is
// that of the command. disconnect ends it.
func (s *deployment) connect(command string) (c *store.Connection, disconnect func(), err error) {
	c, err = store.Connect(store.ConnectionConfig{URI: s.uri, Database: s.database, App: "brim " + command, Monitor: crash.Monitor(), Logger: slog.New(slog.DiscardHandler)})
	return c, func() { withinSecond(c.Close) }, err
}

// withinSecond ends connections. It waits for a second at most; nothing is written any more.
func withinSecond(end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = end(ctx)
}
