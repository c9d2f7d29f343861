// Command generate writes the Grafana dashboards. writepath.go, storage.go,
// loadtest.go and sensors.go define the content, panel.go the style of panels,
// and model.go Grafana's JSON.
//
//	go generate ./deploy/...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

//go:generate go run . ../dashboards

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("one argument is needed, the folder to write to")
	}
	for _, d := range dashboards() {
		file, err := os.Create(filepath.Join(args[0], d.file()))
		if err != nil {
			return fmt.Errorf("create dashboard: %w", err)
		}
		if err := errors.Join(d.write(file), file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", file.Name(), err)
		}
	}
	return nil
}

// dashboards are all dashboards in reading order.
func dashboards() []dashboard {
	return []dashboard{sensors(), writePath(), storageEngine(), loadTest()}
}

// A dashboard is a page of Grafana.
type dashboard struct {
	name  string // of the file and, after "brim-", in URLs
	title string
	about string
	rows  []row

	source        string   // variable that selects the data source; empty: datasource
	from, refresh string   // initial time range and refresh; empty: 15 minutes, every 5 s
	variables     []object // selectors at the top; nil: a Prometheus and streams
}

// A row is a titled part of a page. Panels flow from left to right.
type row struct {
	title  string
	panels []panel
}

func (d dashboard) file() string { return d.name + ".json" }

// write writes the dashboard in Grafana's import format.
func (d dashboard) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // keeps < and > in queries readable
	e.SetIndent("", "  ")
	return e.Encode(d.model())
}
