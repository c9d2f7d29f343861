package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/brim-telemetry/brim/internal/load/report"
)

// loadFiles are what a run reads and writes beside its output. They are opened
// before it, so that a path that cannot be written costs no run.
type loadFiles struct {
	html, hgrm *os.File // nil: not asked for
	extras     report.Extras
}

func (o *loadOptions) openFiles() (*loadFiles, error) {
	f := &loadFiles{}
	if o.floor != "" {
		floor, err := report.Read(o.floor)
		if err != nil {
			return nil, err
		}
		f.extras.Floor, f.extras.FloorPath = floor, o.floor
	}
	var err error
	if f.html, err = openToWrite(o.report); err != nil {
		return nil, err
	}
	if f.hgrm, err = openToWrite(o.hgrm); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// openToWrite opens a file without emptying it: what is there stays until there
// is something new.
func openToWrite(path string) (*os.File, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nothing was asked for
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the report: %w", err)
	}
	return file, nil
}

func (f *loadFiles) close() { closeUnwritten(f.html, f.hgrm) }

// closeUnwritten closes the files that no rewrite has closed, and leaves none that
// is empty.
func closeUnwritten(files ...*os.File) {
	for _, file := range files {
		if file == nil || file.Close() != nil {
			continue
		}
		if info, err := os.Stat(file.Name()); err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			_ = os.Remove(file.Name())
		}
	}
}

// rewrite replaces a file's content and closes it.
func rewrite(file *os.File, write func(io.Writer) error) error {
	var err error
	if regular(file) { // and no pipe or device
		err = file.Truncate(0)
	}
	if err == nil {
		err = write(file)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file.Name(), err)
	}
	return nil
}

func regular(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// A metricsServer shows the generator's metrics.
type metricsServer struct {
	server  *http.Server
	address string
	serving sync.WaitGroup
}

// serveMetrics serves /metrics where it was asked for. The registry has them
// from when the generator was made.
func (o *loadOptions) serveMetrics(ctx context.Context) (*metricsServer, error) {
	m := &metricsServer{}
	if o.metricsAddr == "" {
		return m, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.metricsAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the load's metrics (--metrics-addr): %w", err)
	}
	m.address = listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	m.serving.Go(func() { _ = m.server.Serve(listener) }) // until it is closed
	return m, nil
}

func (m *metricsServer) close() {
	if m.server != nil {
		_ = m.server.Close()
	}
	m.serving.Wait()
}

// loadRegistry is where the generator's metrics are, beside those of its process.
func loadRegistry() (*prometheus.Registry, error) {
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), readVersion().Collector(),
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return reg, nil
}
