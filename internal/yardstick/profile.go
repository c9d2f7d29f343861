package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// startProfile begins to profile the daemon if that was asked for. What it
// returns waits for the profiles to be written.
func (y *yardstick) startProfile(ctx context.Context, r *rig, number int) (stop func() error) {
	if y.profile == "" {
		return func() error { return nil }
	}
	seconds := max(1, int(y.time/time.Second))
	var fetching errgroup.Group
	for _, kind := range []string{"profile", "allocs"} {
		fetching.Go(func() error {
			name := map[string]string{"profile": "cpu", "allocs": "allocs"}[kind]
			file := filepath.Join(y.profile, fmt.Sprintf("%s-%d.pprof", name, number+1))
			return r.fetch(ctx, fmt.Sprintf("/debug/pprof/%s?seconds=%d", kind, seconds), file)
		})
	}
	return fetching.Wait
}

// fetch writes a page of the admin listener into a file.
func (r *rig) fetch(ctx context.Context, path, file string) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the directory of profiles: %w", err)
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return r.Ask(ctx, "GET", path, func(answer io.Reader) error {
		_, err := io.Copy(out, answer)
		return err
	})
}
