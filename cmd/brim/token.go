package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// newToken returns `brim token`, for who may do what:
//
//	create NAME ─▶ token on stdout, once
//	      └─ its hash ─▶ --access-file ◀─ list, revoke NAME
//	                          │
//	       a daemon looks at it within two seconds of a change
func newToken(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the identities of an access file: tokens and client certificates",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreate(p), newTokenList(p), newTokenRevoke(p))
	return cmd
}

// accessFlags adds the flags that say where the access file is. The result is to
// be called when the flags are parsed.
func accessFlags(cmd *cobra.Command) func(*process) (string, error) {
	flags := cmd.Flags()
	flags.SortFlags = false
	path := flags.String("access-file", "", "YAML `FILE` with identities (BRIM_ACCESS_FILE, or access-file in the file)")
	settings := flags.String("config", "", "YAML `FILE` with the daemon's settings")
	return func(p *process) (string, error) {
		s := daemon.Sources{Env: p.env, Path: *settings}
		if flags.Changed("access-file") {
			s.Flags = map[string]string{"access-file": *path}
		}
		c, err := s.Load()
		if err != nil {
			return "", err
		}
		if c.AccessFile == "" {
			return "", config.Usage(errors.New("which access file is not said; give --access-file FILE, BRIM_ACCESS_FILE, or --config FILE with access-file in it"))
		}
		return c.AccessFile, nil
	}
}

// lockPatience is how long a change waits for others, of which each takes some
// milliseconds.
const lockPatience = 10 * time.Second

func newTokenRevoke(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Take an identity out of the access file; daemons refuse it within two seconds",
		Example: "  brim token revoke north --access-file /etc/brim/access.yaml",
		Args:    exactly("a NAME"),
	}
	file := accessFlags(cmd)
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := file(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), lockPatience)
		defer cancel()
		switch err := access.Remove(ctx, path, args[0]); {
		case errors.Is(err, access.ErrNoIdentity) && !exists(path):
			return fmt.Errorf("there is no access file %s; give the one that the daemon has by --access-file", path)
		case errors.Is(err, access.ErrNoIdentity):
			return fmt.Errorf("%s has no identity %q; brim token list shows them", path, args[0])
		case err != nil:
			return err
		}
		if *output == "json" {
			return printJSON(p.stdout, struct {
				Revoked string `json:"revoked"`
			}{args[0]})
		}
		_, err = fmt.Fprintf(p.stdout, "%s is revoked; daemons that use %s refuse it within two seconds\n", printable(args[0]), path)
		return err
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func newTokenList(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Print the identities of the access file, and what they may do",
		Example: "  brim token list --access-file /etc/brim/access.yaml",
		Args:    cobra.NoArgs,
	}
	file := accessFlags(cmd)
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		path, err := file(p)
		if err != nil {
			return err
		}
		entries, err := access.Load(path)
		if err != nil {
			return err
		}
		now, list := time.Now(), make([]listedIdentity, len(entries))
		for i := range entries {
			list[i] = listed(&entries[i], now)
		}
		if *output == "json" {
			return printJSON(p.stdout, list)
		}
		if len(list) == 0 {
			_, err := fmt.Fprintf(p.stderr, "%s holds no identities; brim token create makes one\n", path)
			return err
		}
		return printIdentities(p.stdout, list)
	}
	return cmd
}

// A listedIdentity is what is shown of an identity. There are no secrets in it,
// nor what they could be checked against.
type listedIdentity struct {
	Name         string         `json:"name"`
	Certificate  string         `json:"certificate,omitempty"` // empty: it has a token
	Scopes       []access.Scope `json:"scopes"`
	SensorPrefix string         `json:"sensor_prefix,omitempty"`
	Created      *time.Time     `json:"created,omitempty"`
	Expires      *time.Time     `json:"expires,omitempty"`
	Expired      bool           `json:"expired"`
	Quota        listedQuota    `json:"quota"`
}

// A listedQuota has what the file gives; nil is as the daemon's settings.
type listedQuota struct {
	RequestsPerSecond   *float64 `json:"requests_per_second,omitempty"`
	ReadingsPerSecond   *float64 `json:"readings_per_second,omitempty"`
	NewSensorsPerSecond *float64 `json:"new_sensors_per_second,omitempty"`
	ActiveSensors       *float64 `json:"active_sensors,omitempty"`
}

func listed(e *access.Entry, now time.Time) listedIdentity {
	instant := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	given := func(v float64) *float64 {
		if v < 0 {
			return nil
		}
		return &v
	}
	return listedIdentity{
		Name: e.Name, Certificate: e.Certificate, Scopes: e.Scopes, SensorPrefix: e.SensorPrefix,
		Created: instant(e.Created), Expires: instant(e.Expires), Expired: !e.Expires.IsZero() && !now.Before(e.Expires),
		Quota: listedQuota{given(e.Quota.RequestsPerSecond), given(e.Quota.ReadingsPerSecond), given(e.Quota.NewSensorsPerSecond), given(e.Quota.ActiveSensors)},
	}
}

func printIdentities(w io.Writer, list []listedIdentity) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, "name\tshows\tscopes\tsensors\tcreated\texpires\trequests/s\treadings/s\tnew sensors/s\tactive sensors"); err != nil {
		return err
	}
	for i := range list {
		l := &list[i]
		shows, of, expires := "token", "all", showInstant(l.Expires, "never")
		if l.Certificate != "" {
			shows = "certificate " + printable(l.Certificate)
		}
		if l.SensorPrefix != "" {
			of = printable(l.SensorPrefix) + "…"
		}
		if l.Expired {
			expires += " (expired)"
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(l.Name), shows, joinScopes(l.Scopes), of,
			showInstant(l.Created, absent), expires,
			showLimit(l.Quota.RequestsPerSecond), showLimit(l.Quota.ReadingsPerSecond), showLimit(l.Quota.NewSensorsPerSecond), showLimit(l.Quota.ActiveSensors)); err != nil {
			return err
		}
	}
	return table.Flush()
}

func showInstant(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return t.Format(time.RFC3339)
}

// showLimit tells what the file gives, absent where that are the settings.
func showLimit(v *float64) string {
	switch {
	case v == nil:
		return absent
	case *v == 0:
		return "no limit"
	}
	return fmt.Sprint(*v)
}
