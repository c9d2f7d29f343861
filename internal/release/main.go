// Command release packs Brim for others: for each platform an archive with the
// program, what is read and installed with it, and the licences of all that is
// compiled into it; beside them their checksums. `make release` runs it.
//
//	checkout ─▶ stamp ─┬─▶ go build for this machine ─▶ manual pages, completions ─┐
//	                   └─▶ go build for each platform ─────────────────────────────┴─▶ archives ─▶ SHA256SUMS
//
// The same commit and the same Go give the same bytes, on any machine: nothing
// in an archive has the time or the place of the build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// platforms are what a release is for; the first part is GOOS.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := config{log: stderr}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.root, "root", ".", "the checkout")
	flags.StringVar(&c.out, "out", "dist", "folder of the archives; what a former release left there is replaced")
	version := flags.String("version", "", "version to stamp; empty: what git describe says")
	list := flags.String("platforms", strings.Join(platforms, ","), "what to build for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("release takes no arguments, and was given %q", flags.Args())
	}
	for name := range strings.SplitSeq(*list, ",") {
		if !slices.Contains(platforms, name) {
			return fmt.Errorf("--platforms %q does not fit: allowed are %s", name, strings.Join(platforms, ", "))
		}
		system, machine, _ := strings.Cut(name, "/")
		c.platforms = append(c.platforms, platform{system, machine})
	}
	var err error
	if c.stamp, err = readStamp(ctx, c.root, *version); err != nil {
		return err
	}
	c.flags, c.env = reproducible()
	scratch, err := os.MkdirTemp("", "brim-release-")
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }() // temporary anyway
	names, err := c.pack(ctx, scratch)
	if err != nil {
		return err
	}
	for _, name := range names {
		_, _ = fmt.Fprintln(stdout, name) // they are there, told or not
	}
	return nil
}
