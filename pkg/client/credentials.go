package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A TokenSource returns the token to show. It is asked before each request, and
// may be called by several goroutines. An error of it is one of the attempt, which
// is repeated. It returns when its context ends.
type TokenSource func(context.Context) (string, error)

// Token returns the source of one token.
func Token(token string) TokenSource {
	return func(context.Context) (string, error) {
		if err := checkToken(token); err != nil {
			return "", fmt.Errorf("%w: %w", errNeverGood, err)
		}
		return token, nil
	}
}

// errNeverGood is in the error of a source that has no other token.
var errNeverGood = errors.New("there is one token, and it cannot be used")

// mayCome reports whether a source that has failed so may have a token later, such
// as a file that is being replaced.
func mayCome(err error) bool { return !errors.Is(err, errNeverGood) }

// maxTokenFile is more than any token has, and less than a wrong file may.
const maxTokenFile = 4 << 10

// TokenFile returns a source that reads the only line of a file each time, so that
// a new token is shown as soon as it is there.
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

// checkToken refuses what cannot stand in a header, without repeating it.
func checkToken(token string) error {
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("this is no token: it is empty, or has characters that a token has not")
	}
	return nil
}

// LoadTLS returns a configuration that trusts the authorities of a PEM file beside
// those of the system, and shows a certificate. Any of the names may be empty, but
// cert and key belong together.
func LoadTLS(ca, cert, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool() // a machine may trust nobody
		}
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("read certificates: %s has none in PEM", ca)
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
