package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/client/wire"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Config configures a Client. Only Addresses is required.
type Config struct {
	// Addresses of daemons: http://host:port, https://host:port, grpc://host:port or
	// grpcs://host:port, all of one protocol. The client uses the first as long as it
	// accepts readings, and then the next. An Idempotency-Key is known to one daemon
	// only, so a request with an unknown outcome is repeated at the same address; see
	// AtLeastOnce.
	Addresses []string
	Stream    string        // empty: the daemon's default stream
	Ack       telemetry.Ack // what Write waits for; empty: the daemon's default
	// Token is sent with each request; nil: none. It is not sent unencrypted to another
	// machine unless TokenInClear is set.
	Token        TokenSource
	TokenInClear bool
	TLS          *tls.Config // https and grpcs; nil: the system's, see LoadTLS
	Gzip         bool        // compress requests, to about a tenth
	// Timeout of one attempt; 0: 30 s, three times as long as a daemon waits for MongoDB
	// for the ack stored.
	Timeout time.Duration
	// RetryFor is how long a request is repeated; 0: 2 min; Never: not at all; Forever:
	// until its context ends. A request with an unknown outcome is repeated for KeyLife
	// at most.
	RetryFor time.Duration
	// KeyLife is how long a request with an unknown outcome is repeated; 0: 14 min.
	// Daemons remember keys for 15 minutes, but at most a million of them and 32 MiB of
	// answers: with more than a thousand requests a second, KeyLife has to be less than
	// a million divided by that rate.
	KeyLife time.Duration
	// Before repetition n the client waits for the time that the daemon asked for, and
	// a random time of up to BackoffMin times 2^(n-1), at most BackoffMax. 0: 100 ms
	// and 10 s.
	BackoffMin, BackoffMax time.Duration
	// AtLeastOnce prefers storing readings twice to losing them: requests with an
	// unknown outcome are also sent to other addresses, and after KeyLife.
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
	// defaultKeyLife is a minute shorter than daemons remember keys.
	defaultKeyLife = 14 * time.Minute
	leastKeyLife   = time.Second
	maxKey         = 128 // bytes
)

func (c *Config) setDefaults() {
	c.Timeout, c.RetryFor, c.KeyLife = cmp.Or(c.Timeout, defaultTimeout), cmp.Or(c.RetryFor, defaultRetryFor), cmp.Or(c.KeyLife, defaultKeyLife)
	c.BackoffMin = cmp.Or(c.BackoffMin, defaultBackoffMin)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(defaultBackoffMax, c.BackoffMin))
}

// check checks the configuration, and returns its addresses.
func (c *Config) check() ([]wire.Address, error) {
	if len(c.Addresses) == 0 || len(c.Addresses) > maxAddresses {
		return nil, fmt.Errorf("there are %d addresses; 1 to %d are needed, such as http://127.0.0.1:8430", len(c.Addresses), maxAddresses)
	}
	all := make([]wire.Address, len(c.Addresses))
	for i, text := range c.Addresses {
		a, err := wire.ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if a.GRPC != all[0].GRPC && i > 0 {
			return nil, fmt.Errorf("addresses %s and %s have different protocols; a client speaks HTTP or gRPC", all[0], a)
		}
		if c.Token != nil && !a.TLS && !a.Loopback() && !c.TokenInClear {
			return nil, fmt.Errorf("the token would be sent to %s unencrypted; use https:// or grpcs://, or set TokenInClear", a)
		}
		all[i] = a
	}
	switch {
	case c.Timeout < 0:
		return nil, fmt.Errorf("timeout %s is negative", c.Timeout)
	case c.KeyLife < leastKeyLife || c.KeyLife > defaultKeyLife:
		return nil, fmt.Errorf("KeyLife %s is out of range; allowed: %s to %s", c.KeyLife, leastKeyLife, defaultKeyLife)
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

func checkKey(key string) error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(key) > maxKey || !utf8.ValidString(key) || strings.ContainsFunc(key, unprintable) {
		return fmt.Errorf("the key %s cannot be used; a key is 1 to %d bytes of printable UTF-8", telemetry.Quote([]byte(key)), maxKey)
	}
	return nil
}

// A TokenSource returns the token to send. It is called before each attempt, from
// several goroutines. An error fails the attempt, which is retried. It must return
// when its context ends.
type TokenSource func(context.Context) (string, error)

// Token returns a source with a fixed token.
func Token(token string) TokenSource {
	return func(context.Context) (string, error) {
		if err := checkToken(token); err != nil {
			return "", fmt.Errorf("%w: %w", errNeverGood, err)
		}
		return token, nil
	}
}

// errNeverGood is in the error of a source that will never have a valid token. Other
// errors may pass, such as those while a file is being replaced.
var errNeverGood = errors.New("the token is invalid")

// maxTokenFile bounds what is read in case it is the wrong file.
const maxTokenFile = 4 << 10

// TokenFile returns a source that reads a one-line file each time, so that a new
// token takes effect at once.
func TokenFile(path string) TokenSource {
	return func(context.Context) (string, error) {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
		if err != nil {
			return "", err
		}
		token := string(bytes.TrimSpace(content))
		if err := checkToken(token); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return token, nil
	}
}

// checkToken checks that a token can be sent in a header. The error does not contain it.
func checkToken(token string) error {
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("this is not a token: it is empty, or has characters that no token has")
	}
	return nil
}

// LoadTLS returns a configuration that trusts the authorities in a PEM file in addition
// to the system's, and presents a certificate. Any of the names may be empty, but cert
// and key belong together.
func LoadTLS(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool() // there may be no system pool
		}
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("read certificates: %s has no certificate in PEM", ca)
		}
	}
	if cert == "" && key == "" {
		return config, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("a certificate and its key belong together; give both")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
