package daemon

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Version describes the build.
type Version struct {
	Version  string `json:"version"`        // of the release or the module, "(devel)" outside a checkout
	Revision string `json:"revision"`       // of the checkout, with "+dirty" if it had changes; may be empty
	Date     string `json:"date,omitempty"` // of the revision, RFC 3339 in UTC; may be empty
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// VersionOf parses the stamp that the linker sets. Without a stamp it uses the build information
// of the Go toolchain.
func VersionOf(stamp string) Version {
	v := Version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

// Collector shows the version as a metric.
func (v Version) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "brim_build_info",
		Help:        "Always 1; the labels say what was built.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go},
	}, func() float64 { return 1 })
}

// Line returns the version as one line. It omits what is unknown.
func (v Version) Line() string {
	parts := []string{"brim", v.Version}
	for _, known := range []string{v.Revision, v.Date} {
		if known != "" {
			parts = append(parts, known)
		}
	}
	return fmt.Sprintf("%s (%s, %s)", strings.Join(parts, " "), v.Go, v.Platform)
}
