package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// TLSConfig says with what listeners speak TLS.
type TLSConfig struct {
	CertFile, KeyFile string // PEM; the certificate's authorities may stand behind it
	// ClientCAFile has the authorities of client certificates in PEM; empty:
	// clients are asked for none. A certificate that is shown must be signed by
	// one of them. Who it is, a Guard knows.
	ClientCAFile string
	// RequireClientCert refuses clients without a certificate.
	RequireClientCert bool

	Logger     *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics
	Now        func() time.Time      // nil: time.Now
}

// A TLS has what listeners need to speak TLS, and notices when its files change.
// Connections that are open go on as they began; a Guard that knows the TLS asks
// whether the certificates that clients showed are still trusted.
type TLS struct {
	config TLSConfig
	failed prometheus.Counter

	mu      sync.Mutex
	looked  time.Time // at the files
	files   keyFiles  // of the last look, whether they could be used or not
	trouble string    // of the last look; empty: none
	using   *material
}

// filesEvery is how often the files are looked at, at most. They are a few
// kilobytes, so that they are compared and not asked for their times, which a
// copy may keep.
const filesEvery = time.Second

// NewTLS reads the files. Its errors name the file and what is wrong with it.
func NewTLS(c TLSConfig) (*TLS, error) {
	if c.CertFile == "" || c.KeyFile == "" {
		return nil, errors.New("set up TLS: the file of the certificate or that of its key is missing")
	}
	if c.RequireClientCert && c.ClientCAFile == "" {
		return nil, errors.New("set up TLS: client certificates are required, and there is no file of their authorities")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	t := &TLS{config: c, looked: c.Now()}
	var err error
	if t.files, err = t.read(); err == nil {
		t.using, err = t.files.parse(&c)
	}
	if err != nil {
		return nil, fmt.Errorf("set up TLS: %w", err)
	}
	if err := t.using.valid(&c); err != nil {
		return nil, fmt.Errorf("set up TLS: %w", err)
	}
	// That a group reads it is how services and Kubernetes hand keys over.
	if info, err := os.Stat(c.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		c.Logger.Warn("everybody on this machine may read the TLS key: chmod 600 would keep it secret, or 640 with a group of its own", "file", c.KeyFile, "mode", info.Mode().Perm().String())
	}
	t.register()
	return t, nil
}

func (t *TLS) register() {
	factory := promauto.With(t.config.Registerer)
	t.failed = factory.NewCounter(prometheus.CounterOpts{
		Name: "brim_tls_reload_failures_total", Help: "Changes of the TLS files that could not be used; the former ones stayed in use.",
	})
	// Asked for the metric, it looks at the files also where nobody connects.
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_tls_certificate_expiry_seconds", Help: "When the TLS certificate in use expires, in seconds since 1970.",
	}, func() float64 { return float64(t.current().leaf.NotAfter.Unix()) })
}

// Config returns the settings of a listener with these protocols, the better ones
// first. TLS is of version 1.2 at least.
func (t *TLS) Config(protocols ...string) *tls.Config {
	// What a handshake uses is made once for each state of the files, so that
	// sessions can be resumed.
	var mu sync.Mutex
	var of *material
	var made *tls.Config
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := t.current()
			mu.Lock()
			defer mu.Unlock()
			if of != now {
				of, made = now, now.config(t.config.RequireClientCert, protocols)
			}
			return made, nil
		},
	}
}

// A material is what was made of the files, once.
type material struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	clients     *x509.CertPool // nil: clients are asked for no certificates
	verified    *verdicts      // nil: the authorities are those of the start, and of every connection
}

func (m *material) config(require bool, protocols []string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{m.certificate}}
	if m.clients != nil {
		c.ClientCAs, c.ClientAuth = m.clients, tls.VerifyClientCertIfGiven
		if require {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return c
}

// valid refuses a certificate that clients would refuse.
func (m *material) valid(c *TLSConfig) error {
	now := c.Now()
	switch {
	case now.After(m.leaf.NotAfter):
		return fmt.Errorf("the certificate in %s expired at %s", c.CertFile, m.leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(m.leaf.NotBefore):
		return fmt.Errorf("the certificate in %s is not valid before %s; is this machine's clock right?", c.CertFile, m.leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// current returns what is to be used. Once a second it looks at the files; what
// of them cannot be used, like a certificate whose key is not there yet, leaves
// the former in use, and is told once.
func (t *TLS) current() *material {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.config.Now()
	if now.Sub(t.looked).Abs() >= filesEvery {
		t.look(now)
	}
	return t.using
}

// Reload looks at the files at once. What is wrong with them is in the log and
// in the metrics, as it ever is.
func (t *TLS) Reload() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look(t.config.Now())
}

// look takes the files if they have changed and can be used.
func (t *TLS) look(now time.Time) {
	t.looked = now
	files, err := t.read()
	if err == nil && files.equal(&t.files) && t.trouble == "" {
		return
	}
	var fresh *material
	if err == nil {
		t.files = files
		if fresh, err = files.parse(&t.config); err == nil {
			err = fresh.valid(&t.config)
		}
	}
	if err != nil {
		if err.Error() != t.trouble {
			t.trouble = err.Error()
			t.failed.Inc()
			t.config.Logger.Error("the TLS files have changed and cannot be used; the former ones stay in use", "err", err)
		}
		return
	}
	if t.trouble != "" || !fresh.leaf.Equal(t.using.leaf) || t.config.ClientCAFile != "" {
		t.config.Logger.Info("TLS files have changed and are used from now on", "cert", t.config.CertFile, "expires", fresh.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if fresh.verified = t.using.verified; !fresh.clients.Equal(t.using.clients) {
		fresh.verified = &verdicts{of: make(map[*x509.Certificate]bool)}
	}
	t.trouble, t.using = "", fresh
}

// keyFiles are the contents of the files.
type keyFiles struct{ cert, key, clients []byte }

func (f *keyFiles) equal(g *keyFiles) bool {
	return bytes.Equal(f.cert, g.cert) && bytes.Equal(f.key, g.key) && bytes.Equal(f.clients, g.clients)
}

func (t *TLS) read() (f keyFiles, err error) {
	for _, one := range []struct {
		path    string
		content *[]byte
	}{{t.config.CertFile, &f.cert}, {t.config.KeyFile, &f.key}, {t.config.ClientCAFile, &f.clients}} {
		if one.path == "" {
			continue
		}
		if *one.content, err = os.ReadFile(one.path); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (f *keyFiles) parse(c *TLSConfig) (*material, error) {
	if err := wholePEM(f.cert); err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", c.CertFile, err)
	}
	pair, err := tls.X509KeyPair(f.cert, f.key)
	if err != nil {
		// Whichever of the files it is, the error says; never what is in them.
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", c.CertFile, c.KeyFile, err)
	}
	m := &material{certificate: pair, leaf: pair.Leaf}
	if m.leaf == nil {
		if m.leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("read the certificate %s: %w", c.CertFile, err)
		}
	}
	if c.ClientCAFile != "" {
		m.clients = x509.NewCertPool()
		if err := wholePEM(f.clients); err != nil {
			return nil, fmt.Errorf("read the authorities of clients: %s: %w", c.ClientCAFile, err)
		}
		if !m.clients.AppendCertsFromPEM(f.clients) {
			return nil, fmt.Errorf("read the authorities of clients: %s has no certificate in PEM", c.ClientCAFile)
		}
	}
	return m, nil
}
