package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// deleteOptions are the flags of `brim delete`.
type deleteOptions struct {
	sensor string // empty: selected by prefix and tags
	stream string
	prefix string
	tags   []string
	dryRun bool
	yes    bool
	output *string
}

// deletion is the result of `brim delete`.
type deletion struct {
	DryRun   bool  `json:"dryRun,omitempty"`
	Sensors  int64 `json:"sensors"`
	Readings int64 `json:"deleted"` // -1: unknown to MongoDB
}

// newDelete returns `brim delete`, which asks a running daemon to delete sensors.
func newDelete(p *process) *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete [SENSOR]",
		Short: "Delete sensors with all their readings",
		Long: "Delete the readings of one sensor, or of all sensors with a prefix or with tags. A sensor is selected by the tags of its newest reading.\n\n" +
			"Without --yes, sensors selected by --prefix or --tag are only counted. Readings that were acknowledged before and wait to be stored are deleted, too, also those of other daemons. " +
			"An interrupted deletion is continued by the same command.",
		Example: "  brim delete s-1\n" +
			"  brim delete --prefix north/ --dry-run\n" +
			"  brim delete --tag site=north --tag 'room=~1.*' --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) <= 1 {
				return nil
			}
			return exactArg("at most one sensor id")(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.prefix, "prefix", "", "sensors whose ids begin with this `TEXT`")
	tagFlag(flags, &o.tags)
	flags.BoolVar(&o.dryRun, "dry-run", false, "count the sensors, and delete nothing")
	flags.BoolVar(&o.yes, "yes", false, "delete what --prefix and --tag select")
	flags.StringVar(&o.stream, "stream", "", "`NAME` of the stream; empty: the daemon's default stream")
	o.output = outputFlag(cmd, "text", "json")
	withRemote(cmd, p, func(ctx context.Context, r *remote, args []string) error {
		if len(args) == 1 {
			o.sensor = args[0]
		}
		if err := o.check(len(args) == 1); err != nil {
			return config.Usage(err)
		}
		d, err := o.run(ctx, p, r)
		if err != nil && d.Sensors == 0 {
			return err
		}
		return errors.Join(err, o.print(p, d)) // including what was deleted before an error
	})
	return cmd
}

// tagFlag adds --tag.
func tagFlag(flags *pflag.FlagSet, to *[]string) {
	flags.StringArrayVar(to, "tag", nil, "sensors with this tag: `NAME=VALUE`, NAME!=VALUE, NAME=~PATTERN or NAME!~PATTERN; if repeated, with all of them")
}

// check rejects flags that do not fit together.
func (o *deleteOptions) check(one bool) error {
	several := o.prefix != "" || len(o.tags) > 0
	switch {
	case one == several:
		return errors.New("brim delete takes either a sensor id, or --prefix or --tag")
	case one && o.sensor == "":
		return errors.New("the sensor id is empty")
	case one && o.dryRun:
		return errors.New("--dry-run and a sensor id cannot be used together; to see the sensor: brim query --sensors --prefix ID")
	case o.dryRun && o.yes:
		return errors.New("--dry-run and --yes cannot be used together")
	}
	for _, text := range o.tags {
		switch m, err := telemetry.ParseMatcher(text); {
		case err != nil:
			return fmt.Errorf("--tag %q: %w", text, err)
		case m.Kind == telemetry.MatchEqual && m.Value == "":
			return fmt.Errorf("--tag %q: the value is empty, which would select every sensor without this tag; if that is meant, use '%s!~.+'", text, m.Name)
		}
	}
	return nil
}

// run deletes page by page, or counts.
func (o *deleteOptions) run(ctx context.Context, p *process, r *remote) (*deletion, error) {
	query := url.Values{}
	if o.stream != "" {
		query.Set("stream", o.stream)
	}
	d := &deletion{}
	if o.sensor != "" {
		_, err := d.ask(ctx, r, "/v1/sensors/"+escapeSensor(o.sensor)+"?"+query.Encode())
		return d, err
	}
	if o.prefix != "" {
		query.Set("prefix", o.prefix)
	}
	query["tag"] = o.tags
	d.DryRun = !o.yes
	if d.DryRun {
		query.Set("dry-run", "true")
		query.Set("limit", strconv.Itoa(pageSize))
	}
	live := newProgressLine(p.stderr, 5*time.Second)
	defer live.end()
	for {
		after, err := d.ask(ctx, r, "/v1/sensors?"+query.Encode())
		if err != nil || after == "" {
			return d, err
		}
		query.Set("after", after)
		live.tell(d.String() + " so far")
	}
}

// ask sends one request and adds its result; after is where the next one begins.
func (d *deletion) ask(ctx context.Context, r *remote, target string) (after string, err error) {
	body, err := r.read(ctx, http.MethodDelete, target)
	if err != nil {
		return "", err
	}
	answer := struct {
		Deleted, Sensors int64
		After            string
	}{Sensors: -1}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("read the daemon's answer: %w", err)
	}
	if answer.Sensors < 0 { // for a single sensor
		answer.Sensors = min(1, max(answer.Deleted, -answer.Deleted))
	}
	d.Sensors += answer.Sensors
	if d.Readings < 0 || answer.Deleted < 0 {
		d.Readings = -1
	} else {
		d.Readings += answer.Deleted
	}
	return answer.After, nil
}

// String summarizes the result.
func (d *deletion) String() string {
	sensors := plural(d.Sensors, "sensor")
	switch {
	case d.DryRun:
		return sensors
	case d.Readings < 0:
		return "deleted " + sensors
	}
	return "deleted " + sensors + " with " + humanize.Comma(d.Readings) + " readings"
}

func (o *deleteOptions) print(p *process, d *deletion) error {
	text := d.String()
	if d.DryRun && !o.dryRun {
		text += "; nothing was deleted: repeat the command with --yes to delete them"
	}
	return p.print(*o.output, d, text+"\n")
}
