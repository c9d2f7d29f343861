package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// announce says that the daemon is ready: to a program in a log line, and to a
// person at a terminal with what can be tried now.
func (d *daemon) announce(uri string) {
	d.log.Info("ready", "took", time.Since(d.began).Round(time.Millisecond), "session", d.session)
	if !isTerminal(d.stderr) {
		return
	}
	where := "in memory only"
	if uri != "" {
		where = fmt.Sprintf("%s  database %s, collection %s", maskURI(uri), d.cfg.Database, d.cfg.Default.Name)
	}
	if server := d.mongod.Load(); server != nil {
		where += fmt.Sprintf("\n  look into it  mongosh \"$(cat %s)\"", shellWord(server.URIFile()))
	}
	scheme := d.scheme() + "://"
	http := scheme + reachable(d.listeners.http)
	show := "" // what a request shows of its sender
	if d.guard.Asks() {
		show = ` -H "Authorization: Bearer $BRIM_TOKEN"`
	}
	_, _ = fmt.Fprintf(d.stderr, `
  Brim %s is ready.

  readings in   %s   gRPC %s
  admin         %s
  asks for      %s
  stored        %s

  Try:
    curl %s/v1/readings%s -d '{"sensorId":"s-1","fields":{"t":23.5}}'
    %s query --url %s s-1

`, d.version.Version, http, reachable(d.listeners.grpc), scheme+reachable(d.listeners.admin), d.asked(), where, http, show, os.Args[0], http)
}

// progress is where a long preparation tells how it goes: on a terminal to the
// person there, anywhere else in the log.
func (d *daemon) progress() io.Writer {
	if isTerminal(d.stderr) {
		return d.stderr
	}
	return lineLogger{d.log}
}

// lineLogger logs the lines that are written to it.
type lineLogger struct{ log *slog.Logger }

func (l lineLogger) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info("preparing", "step", line)
		}
	}
	return len(p), nil
}

// isTerminal reports whether a person may be looking.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
