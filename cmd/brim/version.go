package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// version says what was built, as far as the Go toolchain has noted it.
type version struct {
	Version  string `json:"version"`  // of the module, "(devel)" outside a checkout
	Revision string `json:"revision"` // of the checkout, with "+dirty" if it had changes; may be empty
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
		_, err := fmt.Fprintf(p.stdout, "brim %s %s (%s, %s)\n", v.Version, v.Revision, v.Go, v.Platform)
		return err
	}
	return cmd
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
