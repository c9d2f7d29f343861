// Package wire is the exchange between senders of readings and a daemon, without
// retries and measurements: addresses, gRPC connections, WriteRequests, and refusals.
package wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// An Address is a daemon's.
type Address struct {
	GRPC, TLS bool
	Name      string // host name or IP address, without brackets
	Host      string // host:port
	Base      string // such as http://host:port
}

const addressesAllowed = "allowed: http://host:port, https://host:port, grpc://host:port and grpcs://host:port"

// ParseAddress parses http://host:port, https://host:port, grpc://host:port or
// grpcs://host:port. The default ports for http and https are 80 and 443.
func ParseAddress(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil { // its text may contain a password
		return Address{}, errors.New("the address is not a URL; " + addressesAllowed)
	}
	a, port := Address{Name: u.Hostname()}, u.Port()
	usual, known := map[string]string{"http": "80", "https": "443", "grpc": "", "grpcs": ""}[u.Scheme]
	if !known {
		return Address{}, fmt.Errorf("address %q has an unknown scheme; %s", masked(text), addressesAllowed)
	}
	if port == "" {
		port = usual
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case a.Name == "" || err != nil || number == 0 || strings.ContainsRune(a.Name, ':') && net.ParseIP(strings.Split(a.Name, "%")[0]) == nil:
		return Address{}, fmt.Errorf("address %q needs a host and a port of 1 to 65535; %s", masked(text), addressesAllowed)
	case u.User != nil, u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return Address{}, fmt.Errorf("address %q has more than a host and a port; %s", masked(text), addressesAllowed)
	}
	a.GRPC, a.TLS = strings.HasPrefix(u.Scheme, "grpc"), strings.HasSuffix(u.Scheme, "s")
	a.Host = net.JoinHostPort(a.Name, port)
	a.Base = u.Scheme + "://" + a.Host
	return a, nil
}

// masked hides everything before a host: a password, or a token given as a user name. It
// prefers to hide too much.
func masked(text string) string {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return text
	}
	scheme, _, ok := strings.Cut(text[:at], "://")
	if !ok {
		return "***" + text[at:]
	}
	return scheme + "://***" + text[at:]
}

// String is the address as a URL.
func (a Address) String() string { return a.Base }

// Loopback reports whether other machines cannot see the traffic.
func (a Address) Loopback() bool {
	ip := net.ParseIP(a.Name)
	return a.Name == "localhost" || ip != nil && ip.IsLoopback()
}

// Dial returns a gRPC connection, which reconnects by itself and does not retry
// requests. config is for grpcs; nil: the system's certificates.
func (a Address) Dial(config *tls.Config, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if a.TLS {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		security = credentials.NewTLS(config)
	}
	options = append(options, grpc.WithTransportCredentials(security), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0))
	conn, err := grpc.NewClient("dns:///"+a.Host, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", a, err)
	}
	return conn, nil
}

// ErrImpossible is in the error for an answer that does not match its request.
var ErrImpossible = errors.New("the answer is not to this request")

// CheckCounts checks the counts in the answer to a request with this number of readings.
func CheckCounts(accepted, rejected *int, readings int) error {
	switch {
	case accepted == nil || rejected == nil:
		return errors.New("it does not say how many readings were accepted and rejected")
	case *accepted < 0 || *rejected < 0 || *accepted > readings || *accepted+*rejected != readings:
		return fmt.Errorf("%w: it has %d readings accepted and %d rejected, but %d were sent", ErrImpossible, *accepted, *rejected, readings)
	}
	return nil
}
