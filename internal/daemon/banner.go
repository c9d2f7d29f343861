package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// announce says that the daemon is ready: to a program in a log line, and to a
// person at a terminal with what can be tried now.
func (d *daemon) announce(uri string) {
	scheme := d.scheme() + "://"
	http, page := scheme+reachable(d.listeners.http), scheme+reachable(d.listeners.admin)+"/"
	token := "" // how a request shows who sends it
	if d.guard.Asks() {
		token = ` -H "Authorization: Bearer $BRIM_TOKEN"`
	}
	send := fmt.Sprintf(`curl %s/v1/readings%s -d '{"sensorId":"s-1","fields":{"t":23.5}}'`, http, token)
	d.log.Info("ready", "took", time.Since(d.began).Round(time.Millisecond), "session", d.session, "page", page, "try", send)
	if !config.IsTerminal(d.stderr) {
		return
	}
	where := "in memory only"
	if uri != "" {
		where = fmt.Sprintf("%s  database %s, collection %s", config.MaskURI(uri), d.cfg.Database, d.cfg.Default.Name)
	}
	if server := d.mongod.Load(); server != nil {
		where += fmt.Sprintf("\n  look into it  mongosh \"$(cat %s)\"", config.ShellWord(server.URIFile()))
	}
	_, _ = fmt.Fprintf(d.stderr, `
  Brim %s is ready.

  live page     %s
  readings to   %s   gRPC %s
  asks for      %s
  stored        %s

  Try:
    %s
    %s query --url %s s-1

`, d.version.Version, page, http, reachable(d.listeners.grpc), d.asked(), where, send, os.Args[0], http)
}

// progress is where a long preparation tells how it goes: on a terminal to the
// person there, anywhere else in the log.
func (d *daemon) progress() io.Writer {
	if config.IsTerminal(d.stderr) {
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
