package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
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

// created is what `brim token create` prints as JSON.
type created struct {
	listedIdentity
	Token string `json:"token,omitempty"` // shown once; empty: who comes shows a certificate
}

// A newIdentity is what the flags of `brim token create` say.
type newIdentity struct {
	scopes                                  []string
	prefix, certificate, expires            string
	requests, readings, newSensors, sensors string // empty: as the daemon's settings
}

func newTokenCreate(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and print it, once; only its hash is kept in the access file",
		Long: "Make a token and print it, once; only its hash is kept in the access file, which is made if there is\n" +
			"none. With --certificate there is no token: who shows such a client certificate is NAME.",
		Example: "  brim token create north --scope ingest --sensor-prefix north- --expires 90d --access-file /etc/brim/access.yaml\n" +
			"  brim token create operator --scope admin\n" +
			"  brim token create edge-7 --scope ingest --certificate dns:edge-7.example.org",
		Args: exactly("a NAME"),
	}
	file := accessFlags(cmd)
	var n newIdentity
	flags := cmd.Flags()
	flags.StringSliceVar(&n.scopes, "scope", nil, "what it may do: `SCOPE` of ingest, read and admin, which includes the others; can be repeated")
	flags.StringVar(&n.prefix, "sensor-prefix", "", "`TEXT` that the ids of its sensors begin with; empty: all sensors")
	flags.StringVar(&n.expires, "expires", "", "`TIME` like 2027-11-21T10:00:00Z, or a duration from now like 90d; empty: never")
	flags.StringVar(&n.requests, "requests-per-second", "", "`N` requests, and messages of gRPC streams, a second at most; 0: no limit; empty: as --quota-requests of the daemon")
	flags.StringVar(&n.readings, "readings-per-second", "", "`N` readings a second at most; 0: no limit; empty: as --quota-readings")
	flags.StringVar(&n.newSensors, "new-sensors-per-second", "", "`N` new sensors a second at most; 0: no limit; empty: as --quota-new-sensors")
	flags.StringVar(&n.sensors, "active-sensors", "", "`N` sensors in an hour at most; 0: no limit; empty: as --quota-active-sensors")
	flags.StringVar(&n.certificate, "certificate", "", "`NAME` of a client certificate instead of a token: a common name, or cn:NAME, dns:NAME, uri:URI or email:ADDRESS")
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := file(p)
		if err != nil {
			return err
		}
		e, err := n.entry(args[0], time.Now())
		if err != nil {
			return config.Usage(err)
		}
		token, err := createToken(cmd.Context(), path, e)
		if err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(p.stdout, created{listed(e, e.Created), token})
		}
		return printCreated(p, path, e, token)
	}
	return cmd
}

// entry is the identity that the flags describe.
func (n *newIdentity) entry(name string, now time.Time) (*access.Entry, error) {
	e := &access.Entry{Name: name, Certificate: n.certificate, SensorPrefix: n.prefix, Created: now.UTC().Truncate(time.Second), Quota: access.NoQuota()}
	var err error
	if e.Scopes, err = access.ParseScopes(n.scopes); err != nil {
		return nil, fmt.Errorf("--scope: %w", err)
	}
	if n.expires != "" {
		if e.Expires, err = parseExpiry(n.expires, now); err != nil {
			return nil, fmt.Errorf("--expires: %w", err)
		}
	}
	for _, limit := range []struct {
		flag, text string
		set        func(string) error
	}{
		{"requests-per-second", n.requests, daemon.Rate(&e.Quota.RequestsPerSecond)},
		{"readings-per-second", n.readings, daemon.Rate(&e.Quota.ReadingsPerSecond)},
		{"new-sensors-per-second", n.newSensors, daemon.Rate(&e.Quota.NewSensorsPerSecond)},
		{"active-sensors", n.sensors, daemon.Whole(&e.Quota.ActiveSensors, access.MaxActiveSensors)},
	} {
		if limit.text == "" {
			continue
		}
		if err := limit.set(limit.text); err != nil {
			return nil, fmt.Errorf("--%s: %w", limit.flag, err)
		}
	}
	return e, nil
}

// parseExpiry reads an instant, or a duration from now.
func parseExpiry(s string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		d, err := config.ParseDuration(s)
		if err != nil || d <= 0 {
			return at, fmt.Errorf("%q is neither a time like 2027-11-21T10:00:00Z nor a duration like 90d", s)
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return at, fmt.Errorf("%s is in the past", s)
	}
	return at.UTC().Truncate(time.Second), nil
}

// createToken writes the identity into the file; the token is empty where it
// shows a certificate.
func createToken(ctx context.Context, path string, e *access.Entry) (token string, err error) {
	hash := ""
	if e.Certificate == "" {
		if token, err = access.NewToken(); err != nil {
			return "", err
		}
		hash = access.HashOf(token)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	switch err := access.Add(ctx, path, *e, hash); {
	case errors.Is(err, access.ErrIdentityExists):
		return "", fmt.Errorf("%s has an identity %q already; revoke it first, or choose another name", path, e.Name)
	case err != nil:
		return "", err
	}
	return token, nil
}

// printCreated puts the token alone on stdout, so that a script can keep it, and
// what there is to say of it on stderr.
func printCreated(p *process, path string, e *access.Entry, token string) error {
	if token == "" {
		_, err := fmt.Fprintf(p.stdout, "%s is in %s: who shows a client certificate of %s has the scopes %s\n", printable(e.Name), path, printable(e.Certificate), joinScopes(e.Scopes))
		return err
	}
	if _, err := fmt.Fprintln(p.stdout, token); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This is the token of %s. It is shown this once: %s holds only its hash.\n", printable(e.Name), path)
	b.WriteString("A daemon with --access-file of this file knows it within two seconds. For example:\n")
	fmt.Fprintf(&b, "  curl -H 'Authorization: Bearer TOKEN' %s\n", exampleOf(e))
	_, err := fmt.Fprint(p.stderr, b.String())
	return err
}

// exampleOf is a request that the identity may make, of a daemon as it is
// without settings.
func exampleOf(e *access.Entry) string {
	sensor := e.SensorPrefix + "s-1"
	if slices.Contains(e.Scopes, access.Ingest) || slices.Contains(e.Scopes, access.Admin) {
		return fmt.Sprintf("-d '{\"sensorId\":%q,\"fields\":{\"t\":21.5}}' http://127.0.0.1:8430/v1/readings", sensor)
	}
	return "http://127.0.0.1:8430/v1/sensors/" + url.PathEscape(sensor) + "/latest"
}

func joinScopes(scopes []access.Scope) string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
