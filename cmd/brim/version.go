package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// stamp is put in by who builds a release, "VERSION REVISION DATE":
//
//	go build -ldflags "-X 'main.stamp=v1.2.0 4f0c… 2026-11-21T10:00:00Z'" ./cmd/brim
//
// Without it the Go toolchain tells what it has noted of the checkout.
var stamp string //nolint:gochecknoglobals // only a variable can be set by the linker

// version says what was built, as far as it is known.
type version struct {
	Version  string `json:"version"`        // of the release or the module, "(devel)" outside a checkout
	Revision string `json:"revision"`       // of the checkout, with "+dirty" if it had changes; may be empty
	Date     string `json:"date,omitempty"` // of the revision, RFC 3339 in UTC; may be empty
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if parts := strings.Fields(stamp); len(parts) == 3 {
		v.Version, v.Revision, v.Date = parts[0], parts[1], parts[2]
		return v
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value
		case s.Key == "vcs.time":
			v.Date = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if v.Revision != "" {
		v.Revision += dirty
	}
	return v
}

// collector shows the version as a metric.
func (v version) collector() prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "brim_build_info",
		Help:        "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go},
	})
	info.Set(1)
	return info
}

func newVersion(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print what was built", Args: cobra.NoArgs}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := readVersion()
		if *output == "json" {
			return printJSON(p.stdout, v)
		}
		_, err := fmt.Fprintln(p.stdout, v.line())
		return err
	}
	return cmd
}

// line is the version for people; what is not known is left out.
func (v version) line() string {
	parts := []string{"brim", v.Version}
	for _, known := range []string{v.Revision, v.Date} {
		if known != "" {
			parts = append(parts, known)
		}
	}
	return fmt.Sprintf("%s (%s, %s)", strings.Join(parts, " "), v.Go, v.Platform)
}

// printJSON prints a command's result.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
