package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
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

// sealing is a daemon's sealing API, on its HTTP or its admin listener.
type sealing interface {
	begin(ctx context.Context, stream string) ([]byte, error)
	progress(ctx context.Context, stream string) (session string, p *seal.Progress, err error)
}

// sealPoll is the interval between progress requests.
const sealPoll = 500 * time.Millisecond

// newSeal returns `brim seal`, which asks a running daemon to pack closed windows.
func newSeal(p *process) *cobra.Command {
	var o sealOptions
	admin := localAdmin
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
	flags.SortFlags = false
	flags.BoolVar(&o.wait, "wait", false, "wait until it is done, and show the result")
	flagAdder(flags)("admin", localAdmin, "HOST:PORT", "the daemon's admin listener, if no --url is given; https://HOST:PORT with TLS", adminAddress(&admin))
	o.output = outputFlag(cmd, "text", "json")
	remote := remoteFlags(flags, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.stream = args[0]
		byURL, byAdmin := flags.Changed("url"), flags.Changed("admin")
		if byURL && byAdmin {
			return config.Usage(errors.New("--url and --admin both name a daemon; give one of them"))
		}
		r, err := remote()
		if err != nil {
			return err
		}
		if byURL || !byAdmin && daemonURL(p) != localDaemon {
			return o.run(cmd.Context(), p, sealingByURL{r})
		}
		return o.run(cmd.Context(), p, sealingByAdmin{r.caller, admin})
	}
	return cmd
}

type sealingByURL struct{ *remote }

func (s sealingByURL) ask(ctx context.Context, method, stream string) ([]byte, error) {
	resp, err := s.accepted(ctx, method, strings.Replace(daemon.SealPath, "{stream}", url.PathEscape(stream), 1), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return body, nil
}

func (s sealingByURL) begin(ctx context.Context, stream string) ([]byte, error) {
	return s.ask(ctx, http.MethodPost, stream)
}

func (s sealingByURL) progress(ctx context.Context, stream string) (session string, p *seal.Progress, err error) {
	body, err := s.ask(ctx, http.MethodGet, stream)
	if err != nil {
		return "", nil, err
	}
	var status daemon.SealStatus
	if err := json.Unmarshal(body, &status); err != nil {
		return "", nil, fmt.Errorf("--url: the daemon gave an unexpected answer: %w", err)
	}
	return status.Session, &status.Progress, nil
}

type sealingByAdmin struct {
	*caller
	admin string
}

func (s sealingByAdmin) begin(ctx context.Context, stream string) ([]byte, error) {
	return s.askAdmin(ctx, http.MethodPost, s.admin, "/seal?"+url.Values{"stream": {stream}}.Encode())
}

func (s sealingByAdmin) progress(ctx context.Context, stream string) (session string, p *seal.Progress, err error) {
	status, err := s.askStatus(ctx, s.admin)
	if err != nil {
		return "", nil, err
	}
	at := slices.IndexFunc(status.Streams, func(one daemon.StreamStatus) bool { return one.Name == stream })
	if at < 0 || status.Streams[at].Sealing == nil {
		return "", nil, fmt.Errorf("the daemon at %s no longer has the bucket stream %s", s.admin, stream)
	}
	return status.Session, status.Streams[at].Sealing, nil
}

func (o *sealOptions) run(ctx context.Context, p *process, d sealing) error {
	asked, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	body, err := d.begin(asked, o.stream)
	if err != nil {
		return err
	}
	var begun daemon.SealBegun
	if err := json.Unmarshal(body, &begun); err != nil || begun.Pass == 0 {
		return errors.New("the daemon gave an unexpected answer when it was asked to seal; --url is its HTTP listener, and " + adminHint)
	}
	if !o.wait {
		if *o.output == "json" {
			_, err = p.stdout.Write(body)
		} else {
			_, err = fmt.Fprintf(p.stdout, "The daemon packs the buckets of stream %s whose windows have ended. brim seal %s --wait shows when it is done.\n", o.stream, config.ShellWord(o.stream))
		}
		return err
	}
	progress, err := o.await(ctx, p, d, begun)
	if err != nil {
		return err
	}
	return o.print(p, progress)
}

// await waits for the end of the pass, and returns its progress.
func (o *sealOptions) await(ctx context.Context, p *process, d sealing, begun daemon.SealBegun) (*seal.Progress, error) {
	live := newProgressLine(p.stderr, 5*time.Second)
	defer live.end()
	for {
		session, now, err := d.progress(ctx, o.stream)
		if err != nil {
			return nil, err
		}
		switch {
		case session != begun.Session:
			return nil, errors.New("the daemon was restarted; repeat the command")
		case now.Pass == begun.Pass && !now.Running || now.Pass > begun.Pass:
			return now, nil
		}
		live.tell(cmp.Or(now.Error, sealText(now)))
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
