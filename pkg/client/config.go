package client

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config is what New needs. Only Addresses must be given.
type Config struct {
	// Addresses are those of daemons: http://host:port, https://host:port,
	// grpc://host:port or grpcs://host:port, all of one protocol. The client stays
	// with the first for as long as that takes readings, and then with the next:
	// Idempotency-Keys are known to one daemon only. So a request of which it is not
	// known whether it was taken is repeated where it was sent; see AtLeastOnce.
	Addresses []string
	Stream    string        // empty: the daemon's default stream
	Ack       telemetry.Ack // what Write waits for; empty: the daemon's default
	// Token is shown with each request; nil: none. It is not sent in clear to another
	// machine unless TokenInClear says that it may be.
	Token        TokenSource
	TokenInClear bool
	TLS          *tls.Config // https and grpcs; nil: what the system trusts, see LoadTLS
	Gzip         bool        // compress requests; readings become a tenth or so, for some CPU
	// Timeout is how long one attempt may take; 0: 30 s, three times what a daemon
	// waits for MongoDB where an ack of stored is wanted.
	Timeout time.Duration
	// RetryFor is how long after its beginning a request is repeated, at most;
	// 0: 2 min; Never: not at all; Forever: until its context ends. A request of which
	// it is not known whether it was taken is repeated for KeyLife at the most.
	RetryFor time.Duration
	// KeyLife is how long after it may have been taken a request is repeated at most;
	// 0: 14 min. Daemons remember keys for 15 minutes, but a million of them and 32 MiB
	// of answers at most: one that has more than a thousand requests a second forgets
	// earlier, and needs a KeyLife that is less than a million by that rate.
	KeyLife time.Duration
	// Before the n-th repetition the client waits for a random time of up to
	// BackoffMin times 2^(n-1), but not beyond BackoffMax; and before that, for as long
	// as the daemon asked. 0: 100 ms and 10 s.
	BackoffMin, BackoffMax time.Duration
	// AtLeastOnce rather stores readings twice than loses them: requests of which it
	// is not known whether they were taken go to other addresses too, and are
	// repeated when their keys may be forgotten.
	AtLeastOnce bool
}

// Values of Config.RetryFor.
const (
	Never   time.Duration = -1
	Forever time.Duration = math.MaxInt64
)

const (
	defaultTimeout    = 30 * time.Second
	defaultRetryFor   = 2 * time.Minute
	defaultBackoffMin = 100 * time.Millisecond
	defaultBackoffMax = 10 * time.Second

	maxAddresses = 100
	// defaultKeyLife leaves a minute of the 15 for the way there.
	defaultKeyLife = 14 * time.Minute
	leastKeyLife   = time.Second
	maxKey         = 128 // bytes
)

func (c *Config) setDefaults() {
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&c.Timeout, defaultTimeout}, {&c.RetryFor, defaultRetryFor}, {&c.KeyLife, defaultKeyLife}, {&c.BackoffMin, defaultBackoffMin}, {&c.BackoffMax, max(defaultBackoffMax, c.BackoffMin)}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
}

// check returns the addresses of a configuration that can be used.
func (c *Config) check() ([]address, error) {
	if len(c.Addresses) == 0 || len(c.Addresses) > maxAddresses {
		return nil, fmt.Errorf("there are %d addresses; 1 to %d are needed, such as http://127.0.0.1:8430", len(c.Addresses), maxAddresses)
	}
	all := make([]address, len(c.Addresses))
	for i, text := range c.Addresses {
		a, err := parseAddress(text)
		if err != nil {
			return nil, err
		}
		if a.grpc != all[0].grpc && i > 0 {
			return nil, fmt.Errorf("addresses %s and %s have different protocols; a client speaks HTTP or gRPC", all[0].base, a.base)
		}
		if c.Token != nil && !a.tls && !a.local() && !c.TokenInClear {
			return nil, fmt.Errorf("the token would be sent to %s in clear, where others can read it; use https:// or grpcs://, or set TokenInClear", a.base)
		}
		all[i] = a
	}
	switch {
	case c.Timeout < 0:
		return nil, fmt.Errorf("timeout %s is negative", c.Timeout)
	case c.KeyLife < leastKeyLife || c.KeyLife > defaultKeyLife:
		return nil, fmt.Errorf("KeyLife %s is out of range; allowed are %s to %s", c.KeyLife, leastKeyLife, defaultKeyLife)
	case c.BackoffMin < time.Millisecond || c.BackoffMin > c.BackoffMax:
		return nil, fmt.Errorf("back-off of %s to %s is out of range; it begins with 1ms or more, and ends no lower", c.BackoffMin, c.BackoffMax)
	}
	return all, checkAck(c.Ack)
}

func checkAck(a telemetry.Ack) error {
	if a == "" {
		return nil
	}
	_, err := telemetry.ParseAck(string(a))
	return err
}

const addressesAllowed = "allowed are http://host:port, https://host:port, grpc://host:port and grpcs://host:port"

func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil { // whose text may hold a password
		return address{}, errors.New("the address is not a URL; " + addressesAllowed)
	}
	a, port := address{name: u.Hostname()}, u.Port()
	switch u.Scheme {
	case "http":
		port = portOr(port, "80")
	case "https":
		a.tls, port = true, portOr(port, "443")
	case "grpc":
		a.grpc = true
	case "grpcs":
		a.grpc, a.tls = true, true
	default:
		return address{}, fmt.Errorf("address %q has no scheme that is known; %s", u.Redacted(), addressesAllowed)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case a.name == "" || err != nil || number == 0 || strings.ContainsRune(a.name, ':') && net.ParseIP(strings.Split(a.name, "%")[0]) == nil:
		return address{}, fmt.Errorf("address %q needs a host and a port of 1 to 65535; %s", u.Redacted(), addressesAllowed)
	case u.User != nil, u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return address{}, fmt.Errorf("address %q has more than a host and a port; %s", u.Redacted(), addressesAllowed)
	}
	a.host = net.JoinHostPort(a.name, port)
	a.base = u.Scheme + "://" + a.host
	return a, nil
}

func portOr(port, usual string) string {
	if port == "" {
		return usual
	}
	return port
}

// newKey returns a key that nobody else has: 128 bits of it are random.
func newKey() string { return rand.Text() }

func checkKey(key string) error {
	if len(key) > maxKey || !utf8.ValidString(key) {
		return fmt.Errorf("the key %s cannot be used; a key is 1 to %d bytes of printable UTF-8", telemetry.Quote([]byte(key)), maxKey)
	}
	for _, r := range key {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the key %s holds %U; a key is 1 to %d bytes of printable UTF-8", telemetry.Quote([]byte(key)), r, maxKey)
		}
	}
	return nil
}
