package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// TLSConfig of listeners.
type TLSConfig struct {
	CertFile, KeyFile string // PEM; the certificate's chain may follow it
	// ClientCAFile has the authorities of client certificates in PEM; empty: clients
	// are not asked for one. A Guard finds the identity of a certificate.
	ClientCAFile      string
	RequireClientCert bool // refuse clients without a certificate

	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
}

// A TLS reloads its files when they change. Open connections continue; a Guard with
// this TLS checks whether the certificates of clients are still trusted.
type TLS struct {
	config TLSConfig
	failed prometheus.Counter

	mu      sync.Mutex
	checked time.Time // the files
	files   keyFiles  // at the last check, valid or not
	problem string    // at the last check; empty: none
	using   *keys
}

// tlsInterval is how often the files are checked. They are a few kilobytes, so their
// contents are compared; a copy may preserve their times.
const tlsInterval = time.Second

// NewTLS reads the files. Its errors name the file.
func NewTLS(c TLSConfig) (*TLS, error) {
	if c.CertFile == "" || c.KeyFile == "" {
		return nil, errors.New("set up TLS: the file of the certificate or of its key is missing")
	}
	if c.RequireClientCert && c.ClientCAFile == "" {
		return nil, errors.New("set up TLS: client certificates are required, but there is no file of their authorities")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	t := &TLS{config: c, checked: c.Now()}
	var err error
	if t.files, err = c.read(); err == nil {
		t.using, err = c.parse(t.files)
	}
	if err != nil {
		return nil, fmt.Errorf("set up TLS: %w", err)
	}
	// Services and Kubernetes make keys readable for a group.
	if info, err := os.Stat(c.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		c.Logger.Warn("every user of this machine may read the TLS key: protect it with chmod 600, or with 640 and a group of its own", "file", c.KeyFile, "mode", info.Mode().Perm().String())
	}
	factory := promauto.With(c.Registerer)
	t.failed = factory.NewCounter(prometheus.CounterOpts{
		Name: "brim_tls_reload_failures_total", Help: "Changes of the TLS files that were invalid; the previous ones stayed in use.",
	})
	// Collecting the metric also checks the files, even if no client connects.
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_tls_certificate_expiry_seconds", Help: "When the TLS certificate in use expires, in seconds since 1970.",
	}, func() float64 { return float64(t.current().leaf.NotAfter.Unix()) })
	return t, nil
}

// Config returns the configuration of a listener with these protocols, in order of
// preference.
func (t *TLS) Config(protocols ...string) *tls.Config {
	// The configuration of a handshake is made once for each state of the files, so
	// that sessions can be resumed.
	var mu sync.Mutex
	var of *keys
	var made *tls.Config
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := t.current()
			mu.Lock()
			defer mu.Unlock()
			if of == now {
				return made, nil
			}
			of, made = now, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{now.certificate}}
			if now.clients != nil {
				made.ClientCAs, made.ClientAuth = now.clients, tls.VerifyClientCertIfGiven
				if t.config.RequireClientCert {
					made.ClientAuth = tls.RequireAndVerifyClientCert
				}
			}
			return made, nil
		},
	}
}

// keys are the parsed files.
type keys struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	clients     *x509.CertPool // nil: clients are not asked for certificates
	verified    *verdicts      // nil: the authorities are those of the start
}

// current returns the keys in use. Once a second it checks the files.
func (t *TLS) current() *keys {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.config.Now(); now.Sub(t.checked).Abs() >= tlsInterval {
		t.check(now)
	}
	return t.using
}

// Reload checks the files at once. A problem is in the log and in the metrics.
func (t *TLS) Reload() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(t.config.Now())
}

// check uses the files if they have changed and are valid. Otherwise, as when a
// certificate was written and its key was not yet, the previous ones stay in use.
func (t *TLS) check(now time.Time) {
	t.checked = now
	c := &t.config
	files, err := c.read()
	if err == nil && files.equal(&t.files) && t.problem == "" {
		return
	}
	var fresh *keys
	if err == nil {
		t.files = files
		fresh, err = c.parse(files)
	}
	if err != nil {
		if err.Error() != t.problem {
			t.problem = err.Error()
			t.failed.Inc()
			c.Logger.Error("the TLS files have changed and are invalid; the previous ones stay in use", "err", err)
		}
		return
	}
	if t.problem != "" || !fresh.leaf.Equal(t.using.leaf) || c.ClientCAFile != "" {
		c.Logger.Info("the TLS files have changed and are in use now", "cert", c.CertFile, "expires", fresh.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if fresh.verified = t.using.verified; !fresh.clients.Equal(t.using.clients) {
		fresh.verified = &verdicts{of: make(map[*x509.Certificate]bool)}
	}
	t.problem, t.using = "", fresh
}

// keyFiles are the contents of the files.
type keyFiles struct{ cert, key, clients []byte }

func (f *keyFiles) equal(g *keyFiles) bool {
	return bytes.Equal(f.cert, g.cert) && bytes.Equal(f.key, g.key) && bytes.Equal(f.clients, g.clients)
}

func (c *TLSConfig) read() (f keyFiles, err error) {
	if f.cert, err = os.ReadFile(c.CertFile); err != nil {
		return f, err
	}
	if f.key, err = os.ReadFile(c.KeyFile); err != nil || c.ClientCAFile == "" {
		return f, err
	}
	f.clients, err = os.ReadFile(c.ClientCAFile)
	return f, err
}

func (c *TLSConfig) parse(f keyFiles) (*keys, error) {
	if err := checkPEM(f.cert); err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", c.CertFile, err)
	}
	pair, err := tls.X509KeyPair(f.cert, f.key)
	if err != nil { // it says which file is wrong, and nothing of their contents
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", c.CertFile, c.KeyFile, err)
	}
	k := &keys{certificate: pair, leaf: pair.Leaf}
	switch now := c.Now(); { // a certificate that clients would refuse
	case now.After(k.leaf.NotAfter):
		return nil, fmt.Errorf("the certificate in %s expired at %s", c.CertFile, k.leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(k.leaf.NotBefore):
		return nil, fmt.Errorf("the certificate in %s is not valid before %s; is this machine's clock right?", c.CertFile, k.leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if c.ClientCAFile != "" {
		k.clients = x509.NewCertPool()
		if err := checkPEM(f.clients); err != nil {
			return nil, fmt.Errorf("read the authorities of clients: %s: %w", c.ClientCAFile, err)
		}
		if !k.clients.AppendCertsFromPEM(f.clients) {
			return nil, fmt.Errorf("read the authorities of clients: %s has no certificate in PEM", c.ClientCAFile)
		}
	}
	return k, nil
}

// checkPEM refuses a file with a broken block, of which the parsers would use the rest.
func checkPEM(content []byte) error {
	blocks, rest := 0, content
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		blocks, rest = blocks+1, after
	}
	if bytes.Count(content, []byte("-----BEGIN ")) > blocks || bytes.HasPrefix(bytes.TrimSpace(rest), []byte("-----")) {
		return errors.New("a PEM block is broken or incomplete; write the whole file")
	}
	return nil
}

// verdicts caches the verification of client certificates against authorities that
// have changed since the handshake.
type verdicts struct {
	mu sync.Mutex
	of map[*x509.Certificate]bool
}

const maxVerdicts = 4096 // as many as a listener has connections

// trusts reports whether the present authorities signed a client's certificate. chain
// is as verified in the handshake: the client's certificate, and those behind it.
func (t *TLS) trusts(chain []*x509.Certificate) bool {
	if t == nil || len(chain) == 0 {
		return true
	}
	k := t.current()
	v := k.verified
	if v == nil {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if trusted, known := v.of[chain[0]]; known {
		return trusted
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: k.clients, Intermediates: intermediates, CurrentTime: t.config.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if len(v.of) >= maxVerdicts {
		clear(v.of)
	}
	v.of[chain[0]] = err == nil
	return err == nil
}
