package trend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// patience is how long one query may take: three weeks of a histogram that is
// read every 5 s are some seconds of work.
const patience = 2 * time.Minute

// A client asks one Prometheus. What it says of it never has a secret.
type client struct {
	api       prometheus.API
	transport *http.Transport
	shown     string // the address without user and password
}

// Check reports whether an address and a token file, empty for none, can be
// used. It asks nobody.
func Check(address, tokenFile string) error {
	c, err := newClient(address, tokenFile)
	if err == nil {
		c.close()
	}
	return err
}

// newClient reads address and token file. An error does not repeat the address,
// which may have a password.
func newClient(address, tokenFile string) (*client, error) {
	const allowed = "allowed is http://HOST:PORT or https://…, with user:password@ before the host and a path behind it where these are needed"
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the address of Prometheus makes no sense; " + allowed)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the address of Prometheus has something behind its path; " + allowed)
	}
	auth := &authorizer{user: u.User}
	if tokenFile != "" {
		if u.User != nil {
			return nil, errors.New("there are both a user in the address of Prometheus and a token file; one of them is enough")
		}
		if auth.token, err = readToken(tokenFile); err != nil {
			return nil, err
		}
	}
	u.User = nil
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	auth.next = transport
	c, err := api.NewClient(api.Config{Address: u.String(), Client: &http.Client{Transport: auth, CheckRedirect: sameHost}})
	if err != nil {
		return nil, fmt.Errorf("set up the client of Prometheus: %w", err)
	}
	return &client{api: prometheus.NewAPI(c), transport: transport, shown: u.String()}, nil
}

// close ends the connections that wait for another query.
func (c *client) close() { c.transport.CloseIdleConnections() }

// readToken reads a bearer token, which is the only thing in its file.
func readToken(path string) (string, error) {
	const most = 64 << 10
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the token for Prometheus: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return "", fmt.Errorf("read the token for Prometheus: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > most || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("read the token for Prometheus: %s must hold one token and nothing else", path)
	}
	return token, nil
}

// An authorizer adds user and password, or a token, to each request.
type authorizer struct {
	user  *url.Userinfo
	token string
	next  http.RoundTripper
}

func (a *authorizer) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.user == nil && a.token == "" {
		return a.next.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	} else {
		password, _ := a.user.Password()
		req.SetBasicAuth(a.user.Username(), password)
	}
	return a.next.RoundTrip(req)
}

// sameHost follows a redirection only where the secret may go.
func sameHost(req *http.Request, before []*http.Request) error {
	const most = 10
	if req.URL.Host != before[0].URL.Host || req.URL.Scheme != before[0].URL.Scheme || len(before) >= most {
		return errors.New("it sends to another address, " + req.URL.Scheme + "://" + req.URL.Host + ", which is not followed: give that one")
	}
	return nil
}

// series asks for an expression from moment to moment.
func (c *client) series(parent context.Context, query string, r prometheus.Range) (model.Matrix, error) {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	value, _, _, err := c.api.QueryRange(ctx, query, r)
	if err != nil {
		return nil, c.explain(err)
	}
	m, ok := value.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("ask Prometheus at %s: the answer is no matrix", c.shown)
	}
	return m, nil
}

// values returns what a label is in all series of a metric.
func (c *client) values(parent context.Context, label, metric string, r prometheus.Range) (model.LabelValues, error) {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	values, _, _, err := c.api.LabelValues(ctx, label, []string{metric}, r.Start, r.End)
	if err != nil {
		return nil, c.explain(err)
	}
	return values, nil
}

// explain says what helps where that is known.
func (c *client) explain(err error) error {
	hint := ""
	var problem *prometheus.Error
	if errors.As(err, &problem) {
		switch {
		case problem.Type == prometheus.ErrBadData:
			hint = "; is --selector a list of matchers like job=\"brim\"?"
		case strings.Contains(problem.Msg, "401"), strings.Contains(problem.Msg, "403"):
			hint = "; it wants a user and password in --prometheus, or --prometheus-token-file"
		case strings.Contains(problem.Msg, "404"):
			hint = "; is that the address of a Prometheus? A path before /api/v1 belongs to it"
		}
	}
	return fmt.Errorf("ask Prometheus at %s: %w%s", c.shown, err, hint)
}
