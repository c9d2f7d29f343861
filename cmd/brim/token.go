package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
)

// newToken returns `brim token`, for the identities that may call a daemon:
//
//	create NAME ─▶ token on stdout, once
//	      └─ its hash ─▶ --access-file ◀─ list, revoke NAME
//	                          │
//	       a daemon looks at it within two seconds of a change
func newToken(p *process) *cobra.Command {
	return newGroup("token", "Make, list and revoke the identities of an access file: tokens and client certificates", newTokenCreate(p), newTokenList(p), newTokenRevoke(p))
}

// accessFlags adds the flags that locate the access file. Call the result after the flags are
// parsed.
func accessFlags(cmd *cobra.Command) func(*process) (string, error) {
	load := settingFlags(cmd.Flags(), [2]string{"access-file", "YAML file with identities (BRIM_ACCESS_FILE, or access-file in the file)"})
	return func(p *process) (string, error) {
		c, err := load(p)
		if err != nil {
			return "", err
		}
		if c.AccessFile == "" {
			return "", config.Usage(errors.New("no access file is given; give --access-file FILE, BRIM_ACCESS_FILE, or --config FILE with access-file in it"))
		}
		return c.AccessFile, nil
	}
}

// lockPatience is how long a change waits for others, which take milliseconds each.
const lockPatience = 10 * time.Second

func newTokenRevoke(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Remove an identity from the access file; daemons refuse it within two seconds",
		Example: "  brim token revoke north --access-file /etc/brim/access.yaml",
		Args:    exactArg("a NAME"),
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
		case errors.Is(err, access.ErrNoIdentity):
			if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
				return fmt.Errorf("there is no access file %s; give the one that the daemon has by --access-file", path)
			}
			return fmt.Errorf("%s has no identity %q; brim token list shows them", path, args[0])
		case err != nil:
			return err
		}
		return p.print(*output, map[string]string{"revoked": args[0]}, fmt.Sprintf("%s is revoked; daemons that use %s refuse it within two seconds\n", printable(args[0]), path))
	}
	return cmd
}

func newTokenList(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Print the identities of the access file, and what they may do",
		Example: "  brim token list --access-file /etc/brim/access.yaml",
		Args:    noArgs,
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
		if len(list) == 0 {
			_, _ = fmt.Fprintf(p.stderr, "%s contains no identities; brim token create makes one\n", path)
		}
		return p.print(*output, list, identitiesText(list))
	}
	return cmd
}

// A listedIdentity is the public part of an identity, without secrets or their hashes.
type listedIdentity struct {
	Name         string             `json:"name"`
	Certificate  string             `json:"certificate,omitempty"` // empty: uses a token
	Scopes       []access.Scope     `json:"scopes"`
	SensorPrefix string             `json:"sensor_prefix,omitempty"`
	Created      time.Time          `json:"created,omitzero"`
	Expires      time.Time          `json:"expires,omitzero"`
	Expired      bool               `json:"expired"`
	Quota        map[string]float64 `json:"quota"` // from the file; otherwise the daemon's settings apply

	Token string `json:"token,omitempty"` // of a new identity, shown once
}

// limits are the names of an identity's limits. The flags have the same names, with - for _.
var limits = []string{"requests_per_second", "readings_per_second", "new_sensors_per_second", "active_sensors"}

func listed(e *access.Entry, now time.Time) listedIdentity {
	out := listedIdentity{
		Name: e.Name, Certificate: e.Certificate, Scopes: e.Scopes, SensorPrefix: e.SensorPrefix,
		Created: e.Created.UTC(), Expires: e.Expires.UTC(), Expired: !e.Expires.IsZero() && !now.Before(e.Expires), Quota: make(map[string]float64),
	}
	for i, v := range []float64{e.Quota.RequestsPerSecond, e.Quota.ReadingsPerSecond, e.Quota.NewSensorsPerSecond, e.Quota.ActiveSensors} {
		if v >= 0 {
			out.Quota[limits[i]] = v
		}
	}
	return out
}

func identitiesText(list []listedIdentity) string {
	head := []string{"name", "shows", "scopes", "sensors", "created", "expires", "requests/s", "readings/s", "new sensors/s", "active sensors"}
	var rows [][]string
	for i := range list {
		l := &list[i]
		cells := []string{l.Name, "token", joinScopes(l.Scopes), "all", absent, "never"}
		if l.Certificate != "" {
			cells[1] = "certificate " + l.Certificate
		}
		if l.SensorPrefix != "" {
			cells[3] = l.SensorPrefix + "…"
		}
		if !l.Created.IsZero() {
			cells[4] = l.Created.Format(time.RFC3339)
		}
		if !l.Expires.IsZero() {
			cells[5] = l.Expires.Format(time.RFC3339)
		}
		if l.Expired {
			cells[5] += " (expired)"
		}
		for _, name := range limits {
			switch v, given := l.Quota[name]; {
			case !given:
				cells = append(cells, absent)
			case v == 0:
				cells = append(cells, "no limit")
			default:
				cells = append(cells, fmt.Sprint(v))
			}
		}
		rows = append(rows, cells)
	}
	return tableText(head, rows)
}

func newTokenCreate(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and print it, once; only its hash is kept in the access file",
		Long: "Make a token and print it, once; only its hash is kept in the access file, which is created if there is\n" +
			"none. With --certificate there is no token: a client with that certificate is NAME.",
		Example: "  brim token create north --scope ingest --sensor-prefix north- --expires 90d --access-file /etc/brim/access.yaml\n" +
			"  brim token create operator --scope admin\n" +
			"  brim token create edge-7 --scope ingest --certificate dns:edge-7.example.org",
		Args: exactArg("a NAME"),
	}
	file := accessFlags(cmd)
	now := time.Now()
	e := &access.Entry{Created: now.UTC().Truncate(time.Second), Quota: access.NoQuota()}
	q := &e.Quota
	flags := cmd.Flags()
	add := flagAdder(flags)
	scopes := flags.StringSlice("scope", nil, "what it may do: `SCOPE` of ingest, read and admin, which includes the others; can be repeated")
	flags.StringVar(&e.SensorPrefix, "sensor-prefix", "", "`TEXT` that the ids of its sensors begin with; empty: all sensors")
	add("expires", "", "TIME", "like 2027-11-21T10:00:00Z, or a duration from now like 90d; empty: never", parsed(&e.Expires, func(s string) (time.Time, error) { return parseExpiry(s, now) }))
	add("requests-per-second", "", "N", "requests, and messages of gRPC streams, a second at most; 0: no limit; empty: as --quota-requests of the daemon", optional(config.Number(&q.RequestsPerSecond, 0, access.MaxRate)))
	add("readings-per-second", "", "N", "readings a second at most; 0: no limit; empty: as --quota-readings", optional(config.Number(&q.ReadingsPerSecond, 0, access.MaxRate)))
	add("new-sensors-per-second", "", "N", "new sensors a second at most; 0: no limit; empty: as --quota-new-sensors", optional(config.Number(&q.NewSensorsPerSecond, 0, access.MaxRate)))
	add("active-sensors", "", "N", "sensors in an hour at most; 0: no limit; empty: as --quota-active-sensors", optional(config.Count(&q.ActiveSensors, 0, access.MaxActiveSensors)))
	flags.StringVar(&e.Certificate, "certificate", "", "`NAME` of a client certificate instead of a token: a common name, or cn:NAME, dns:NAME, uri:URI or email:ADDRESS")
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, err := file(p)
		if err != nil {
			return err
		}
		e.Name = args[0]
		if e.Scopes, err = access.ParseScopes(*scopes); err != nil {
			return config.Usage(fmt.Errorf("--scope: %w", err))
		}
		token, err := createToken(cmd.Context(), path, e)
		if err != nil {
			return err
		}
		if *output == "json" {
			made := listed(e, e.Created)
			made.Token = token
			return p.print("json", made, "")
		}
		return printCreated(p, path, e, token)
	}
	return cmd
}

// optional wraps a setter to ignore an empty value.
func optional(set func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return set(s)
	}
}

// parseExpiry parses a time after now, or a duration from now; empty: never.
func parseExpiry(s string, now time.Time) (at time.Time, err error) {
	if s == "" {
		return at, nil
	}
	if at, err = config.ParseTime("+"+s, now); err != nil {
		at, err = config.ParseTime(s, now)
	}
	switch {
	case err != nil:
		return at, fmt.Errorf("%q is neither a time like 2027-11-21T10:00:00Z nor a duration like 90d", s)
	case !at.After(now):
		return at, fmt.Errorf("%s is in the past", s)
	}
	return at.Truncate(time.Second), nil
}

// createToken adds the identity to the file; the token is empty if the identity uses a
// certificate.
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

// printCreated prints only the token to stdout, so that scripts can capture it, and
// explanations to stderr.
func printCreated(p *process, path string, e *access.Entry, token string) error {
	if token == "" {
		_, err := fmt.Fprintf(p.stdout, "%s is in %s: a client with a certificate of %s has the scopes %s\n", printable(e.Name), path, printable(e.Certificate), joinScopes(e.Scopes))
		return err
	}
	if _, err := fmt.Fprintln(p.stdout, token); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stderr, "This is the token of %s. It is shown only once: %s holds its hash.\n"+
		"A daemon with --access-file of this file accepts it within two seconds. For example:\n"+
		"  curl -H 'Authorization: Bearer TOKEN' %s\n", printable(e.Name), path, exampleOf(e))
	return err
}

// exampleOf returns a request that the identity may make to a default daemon.
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
