package main

import (
	"fmt"
	"io"
	"os"
	"time"
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
	http := "http://" + reachable(d.listeners.http)
	_, _ = fmt.Fprintf(d.stderr, `
  Brim %s is ready.

  readings in   %s   gRPC %s
  admin         http://%s
  stored        %s

  Try:
    curl %s/v1/readings -d '{"sensorId":"s-1","fields":{"t":23.5}}'
    %s query --url %s s-1

`, d.version.Version, http, reachable(d.listeners.grpc), reachable(d.listeners.admin), where, http, os.Args[0], http)
}

// isTerminal reports whether a person may be looking.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
