package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// What is shown of a secret, and what of a URI that is refused, is decided here.

// checkURI looks at no more than the scheme and the ports: what follows may
// name servers in the DNS, which is for the daemon to ask. An error does not
// show the URI, nor a part of it that may be a misplaced password, as the
// driver's would.
func checkURI(uri string) error {
	if uri == "" {
		return nil
	}
	if !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://") {
		return errors.New("it is not a MongoDB URI, which begins with mongodb:// or mongodb+srv://")
	}
	_, hosts, _ := strings.Cut(deployment(uri), "://")
	for host := range strings.SplitSeq(hosts, ",") {
		at := strings.LastIndexByte(host, ':')
		if at < 0 || strings.HasSuffix(host, "]") || strings.Contains(host, "/") { // no port, an IPv6 address, a socket
			continue
		}
		if _, err := strconv.ParseUint(host[at+1:], 10, 16); err != nil {
			return errors.New("it is not a MongoDB URI: what follows a host and a colon is no port (mongodb://USER:PASSWORD@HOST:PORT/)")
		}
	}
	return nil
}

// masked stands for a secret.
const masked = "***"

// maskURI hides the password of a MongoDB URI, and options that hold secrets.
// It masks too much rather than too little where a URI is malformed.
func maskURI(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, ok := strings.Cut(rest[:at], ":"); ok {
			rest = user + ":" + masked + rest[at:]
		}
	}
	hosts, query, ok := strings.Cut(rest, "?")
	if !ok {
		return scheme + "://" + hosts
	}
	options := strings.Split(query, "&")
	for i, option := range options {
		name, _, _ := strings.Cut(option, "=")
		lower := strings.ToLower(name)
		if strings.Contains(lower, "password") || lower == "authmechanismproperties" {
			options[i] = name + "=" + masked
		}
	}
	return scheme + "://" + hosts + "?" + strings.Join(options, "&")
}

// maskUser hides all that stands before the host of a URL: a password, or a token
// that somebody gave as a name. It masks too much rather than too little.
func maskUser(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, ok := strings.Cut(address[:at], "://")
	if !ok {
		return masked + address[at:]
	}
	return scheme + "://" + masked + address[at:]
}

// withoutSecret is a flag's refusal without the value, where that may be one.
func withoutSecret(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && invalid.GetFlag().Name == uriSetting {
		return fmt.Errorf("--%s: %w", uriSetting, invalid.Unwrap())
	}
	return err
}
