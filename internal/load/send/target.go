package send

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// A target is where a daemon listens.
type target struct {
	grpc, tls bool
	host      string // without brackets and port, for TLS
	address   string // host:port
	written   string // as the user wrote it
}

const targetsAllowed = "allowed are http://host:port, https://host:port, grpc://host:port and grpcs://host:port"

func parseTarget(s string) (target, error) {
	u, err := url.Parse(s)
	if err != nil {
		// The text of the error holds s, which may hold a password.
		return target{}, fmt.Errorf("the target is not a URL; %s", targetsAllowed)
	}
	t := target{host: u.Hostname(), written: u.Redacted()}
	port := u.Port()
	switch u.Scheme {
	case "http":
		port = portOr(port, "80")
	case "https":
		t.tls, port = true, portOr(port, "443")
	case "grpc":
		t.grpc = true
	case "grpcs":
		t.grpc, t.tls = true, true
	default:
		return target{}, fmt.Errorf("target %q has no scheme that is known; %s", t.written, targetsAllowed)
	}
	switch number, err := strconv.ParseUint(port, 10, 16); {
	case t.host == "":
		return target{}, fmt.Errorf("target %q names no host; %s", t.written, targetsAllowed)
	case err != nil || number == 0:
		return target{}, fmt.Errorf("target %q needs a port of 1 to 65535; %s", t.written, targetsAllowed)
	case u.User != nil, u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return target{}, fmt.Errorf("target %q has more than a host and a port; %s", t.written, targetsAllowed)
	}
	t.address = net.JoinHostPort(t.host, port)
	return t, nil
}

func portOr(port, usual string) string {
	if port == "" {
		return usual
	}
	return port
}

func (t target) protocol() string {
	if t.grpc {
		return "grpc"
	}
	return "http"
}

// String is the target as it was given.
func (t target) String() string { return t.written }
