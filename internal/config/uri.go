package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// This file decides how much of a secret, or of a refused URI, is shown.

// CheckURI checks only the scheme and the ports: the rest may name servers in the DNS,
// which the daemon resolves. Unlike the driver's errors, its errors show neither the URI
// nor a part of it that may be a misplaced password.
func CheckURI(uri string) error {
	if uri == "" {
		return nil
	}
	if !strings.HasPrefix(uri, "mongodb://") && !strings.HasPrefix(uri, "mongodb+srv://") {
		return errors.New("it is not a MongoDB URI, which begins with mongodb:// or mongodb+srv://")
	}
	_, hosts, _ := strings.Cut(Deployment(uri), "://")
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

// Masked stands for a secret.
const Masked = "***"

// MaskURI hides the password of a MongoDB URI, and options that hold secrets. In a
// malformed URI it hides too much rather than too little.
func MaskURI(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if user, _, ok := strings.Cut(rest[:at], ":"); ok {
			rest = user + ":" + Masked + rest[at:]
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
			options[i] = name + "=" + Masked
		}
	}
	return scheme + "://" + hosts + "?" + strings.Join(options, "&")
}

// MaskUser hides all that stands before the host of a URL: a password, or a token
// that was given as a name. It masks too much rather than too little.
func MaskUser(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, ok := strings.Cut(address[:at], "://")
	if !ok {
		return Masked + address[at:]
	}
	return scheme + "://" + Masked + address[at:]
}

// Deployment returns the hosts that a URI names, sorted, without anything
// secret.
func Deployment(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	rest, _, _ = strings.Cut(rest, "?")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	hosts, _, _ := strings.Cut(rest, "/")
	if plain, err := url.PathUnescape(hosts); err == nil {
		hosts = plain
	}
	list := strings.Split(strings.ToLower(hosts), ",")
	slices.Sort(list)
	return scheme + "://" + strings.Join(list, ",")
}

// maxURIBytes is more than any URI has.
const maxURIBytes = 64 << 10

// ReadURIFile reads the URI from a file that contains nothing else. Errors do not show
// the content.
func ReadURIFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}
	if info.Size() > maxURIBytes {
		return "", fmt.Errorf("%s has %d bytes; allowed: a MongoDB URI and nothing else", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}
	uri := strings.TrimSpace(string(text))
	switch {
	case uri == "":
		return "", fmt.Errorf("%s is empty; allowed: a MongoDB URI", path)
	case strings.ContainsAny(uri, "\r\n"):
		return "", fmt.Errorf("%s has several lines; allowed: a MongoDB URI and nothing else", path)
	}
	if err := CheckURI(uri); err != nil {
		return "", fmt.Errorf("%s does not hold a MongoDB URI: %w", path, err)
	}
	return uri, nil
}
