package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/seal"
)

// sealOptions are the flags of `brim seal`.
type sealOptions struct {
	stream string
	wait   bool
	output *string
}

// sealing seals a stream through a daemon's HTTP or admin listener.
type sealing struct {
	begin    func(context.Context) ([]byte, error)
	progress func(context.Context) (*daemon.SealStatus, error)
}

// sealPoll is the interval between progress requests.
const sealPoll = 500 * time.Millisecond

// newSeal returns `brim seal`, which asks a running daemon to pack closed windows.
func newSeal(p *process) *cobra.Command {
	var o sealOptions
	var admin string
	cmd := &cobra.Command{
		Use:   "seal STREAM",
		Short: "Pack the buckets of a stream whose windows have ended",
		Long: "Pack the buckets of a stream whose windows have ended: each becomes one block of columns with statistics, which takes a fraction of the space.\n\n" +
			"The daemon does this by itself --seal-after after the end of a window; this command starts it at once. Readings are accepted and read as before, " +
			"also those that arrive late for a packed bucket. The free space stays in MongoDB's files until brim compact gives it back.",
		Example: "  brim seal readings --wait\n  brim seal machines --url https://brim.example:8430",
		Args:    exactArg("a stream"),
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.wait, "wait", false, "wait until it is done, and show the result")
	flagAdder(flags)("admin", localAdmin, "HOST:PORT", "the daemon's admin listener, if no --url is given; https://HOST:PORT with TLS", adminAddress(&admin))
	o.output = outputFlag(cmd, "text", "json")
	withRemote(cmd, p, func(ctx context.Context, r *remote, args []string) error {
		o.stream = args[0]
		byURL, byAdmin := flags.Changed("url"), flags.Changed("admin")
		if byURL && byAdmin {
			return config.Usage(errors.New("--url and --admin both name a daemon; give one of them"))
		}
		if byURL || !byAdmin && daemonURL(p) != localDaemon {
			return o.run(ctx, p, r.sealing(o.stream))
		}
		return o.run(ctx, p, r.sealingByAdmin(admin, o.stream))
	})
	return cmd
}

func (r *remote) sealing(stream string) sealing {
	path := strings.Replace(daemon.SealPath, "{stream}", url.PathEscape(stream), 1)
	return sealing{
		begin: func(ctx context.Context) ([]byte, error) { return r.read(ctx, http.MethodPost, path) },
		progress: func(ctx context.Context) (*daemon.SealStatus, error) {
			body, err := r.read(ctx, http.MethodGet, path)
			if err != nil {
				return nil, err
			}
			var status daemon.SealStatus
			if err := json.Unmarshal(body, &status); err != nil {
				return nil, fmt.Errorf("--url: the daemon gave an unexpected answer: %w", err)
			}
			return &status, nil
		},
	}
}

func (c *caller) sealingByAdmin(admin, stream string) sealing {
	return sealing{
		begin: func(ctx context.Context) ([]byte, error) {
			return c.askAdmin(ctx, adminTimeout, http.MethodPost, admin, "/seal?"+url.Values{"stream": {stream}}.Encode())
		},
		progress: func(ctx context.Context) (*daemon.SealStatus, error) {
			status, err := c.askStatus(ctx, admin)
			if err != nil {
				return nil, err
			}
			for _, one := range status.Streams {
				if one.Name == stream && one.Sealing != nil {
					return &daemon.SealStatus{Session: status.Session, Progress: *one.Sealing}, nil
				}
			}
			return nil, fmt.Errorf("the daemon at %s no longer has the bucket stream %s", admin, stream)
		},
	}
}

func (o *sealOptions) run(ctx context.Context, p *process, d sealing) error {
	body, err := d.begin(ctx)
	if err != nil {
		return err
	}
	var begun daemon.SealBegun
	if err := json.Unmarshal(body, &begun); err != nil || begun.Pass == 0 {
		return errors.New("the daemon gave an unexpected answer when it was asked to seal; --url is its HTTP listener, and " + adminHint)
	}
	if !o.wait {
		return p.print(*o.output, begun, fmt.Sprintf("The daemon packs the buckets of stream %s whose windows have ended. brim seal %s --wait shows when it is done.\n", o.stream, config.ShellWord(o.stream)))
	}
	progress, err := o.await(ctx, p, d, begun)
	if err != nil {
		return err
	}
	return o.print(p, progress)
}

// await waits for the pass to end, and returns its progress.
func (o *sealOptions) await(ctx context.Context, p *process, d sealing, begun daemon.SealBegun) (*seal.Progress, error) {
	live := newProgressLine(p.stderr, 5*time.Second)
	defer live.end()
	for {
		now, err := d.progress(ctx)
		switch {
		case err != nil:
			return nil, err
		case now.Session != begun.Session:
			return nil, errors.New("the daemon was restarted; repeat the command")
		case now.Pass == begun.Pass && !now.Running || now.Pass > begun.Pass:
			return &now.Progress, nil
		}
		live.tell(cmp.Or(now.Error, sealText(&now.Progress)))
		if err := machine.Pause(ctx, sealPoll); err != nil {
			return nil, err
		}
	}
}

func (o *sealOptions) print(p *process, progress *seal.Progress) error {
	if err := p.print(*o.output, progress, sealText(progress)+"\n"); err != nil {
		return err
	}
	if progress.Error != "" {
		return fmt.Errorf("sealing was not completed: %s", progress.Error)
	}
	return nil
}

// sealText formats progress in one line.
func sealText(p *seal.Progress) string {
	text := fmt.Sprintf("%s of %s packed: %s", plural(p.Parts, "bucket"), plural(p.Sensors, "sensor"), plural(p.Readings, "reading"))
	if p.Parts > 0 {
		text += fmt.Sprintf(", %s → %s of BSON", humanize.IBytes(uint64(p.Before)), humanize.IBytes(uint64(p.After)))
	}
	if p.Changed > 0 {
		text += fmt.Sprintf("; %s changed in the meantime, left to the next pass", humanize.Comma(p.Changed))
	}
	if p.Failed > 0 {
		text += fmt.Sprintf("; %s left as they are, see the daemon's log", humanize.Comma(p.Failed))
	}
	return text
}
