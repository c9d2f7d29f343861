package access

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
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

// A TLS has the certificates of listeners, and reloads their files when they change. Open
// connections continue; a Guard with this TLS checks whether the certificates of clients are
// still trusted.
type TLS struct {
	config TLSConfig
	failed prometheus.Counter
	files  watched
	using  atomic.Pointer[keys]
}

// NewTLS reads the files. Its errors name the file.
func NewTLS(c TLSConfig) (*TLS, error) {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	t := &TLS{config: c}
	t.files = watched{read: t.read, apply: t.apply, refuse: t.invalid}
	if err := t.files.open(); err != nil {
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
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_tls_certificate_expiry_seconds", Help: "When the TLS certificate in use expires, in seconds since 1970.",
	}, func() float64 { return float64(t.using.Load().leaf.NotAfter.Unix()) })
	return t, nil
}

// Config returns the configuration of a listener with these protocols, in order of
// preference; nil without TLS.
func (t *TLS) Config(protocols ...string) *tls.Config {
	if t == nil {
		return nil
	}
	// The configuration is made only once for each version of the files, so that sessions can
	// be resumed.
	var mu sync.Mutex
	var of *keys
	var made *tls.Config
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := t.using.Load()
			mu.Lock()
			defer mu.Unlock()
			if of == now {
				return made, nil
			}
			of, made = now, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{now.certificate}}
			if len(now.authorities) > 0 {
				made.ClientCAs, made.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
				for _, a := range now.authorities {
					made.ClientCAs.AddCert(a)
				}
				if t.config.RequireClientCert {
					made.ClientAuth = tls.RequireAndVerifyClientCert
				}
			}
			return made, nil
		},
	}
}

// ClientCertificate implements tls.Config.GetClientCertificate for connections to other
// daemons. It presents the listeners' certificate if the server accepts its authority, and
// if it is also valid for clients.
func (t *TLS) ClientCertificate(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	own := t.using.Load()
	usages := own.leaf.ExtKeyUsage
	usable := len(usages) == 0 || slices.Contains(usages, x509.ExtKeyUsageClientAuth) || slices.Contains(usages, x509.ExtKeyUsageAny)
	if usable {
		usable = asked.SupportsCertificate(&own.certificate) == nil
	}
	if !usable {
		return new(tls.Certificate), nil // none, since the server would close the connection if it refused one
	}
	return &own.certificate, nil
}

// keys are the parsed files.
type keys struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	authorities []*x509.Certificate // of clients; empty: clients are not asked for certificates
}

// poll applies the files if they have changed or have become valid.
func (t *TLS) poll() {
	if t != nil {
		_ = t.files.check(false) // the failure is logged and counted
	}
}

// Reload checks the files at once. A problem is in the log and in the metrics.
func (t *TLS) Reload() {
	if t != nil {
		_ = t.files.check(true)
	}
}

func (t *TLS) invalid(err error) {
	t.failed.Inc()
	t.config.Logger.Error("the TLS files have changed and are invalid; the previous ones stay in use", "err", err)
}

// read returns the contents of the certificate, its key, and the client CAs.
func (t *TLS) read(bool) ([][]byte, error) {
	var contents [3][]byte
	var err error
	for i, path := range []string{t.config.CertFile, t.config.KeyFile, t.config.ClientCAFile} {
		if path == "" {
			continue
		}
		if contents[i], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return contents[:], nil
}

// apply uses the files if they are valid. They are invalid, for example, when a certificate
// has been written and its key has not.
func (t *TLS) apply(contents [][]byte) error {
	c := &t.config
	fresh, err := c.parse(contents[0], contents[1], contents[2])
	if err != nil {
		return err
	}
	if t.using.Swap(fresh) != nil {
		c.Logger.Info("the TLS files have changed and are in use now", "cert", c.CertFile, "expires", fresh.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *TLSConfig) parse(cert, key, clients []byte) (*keys, error) {
	if _, err := decodePEM(cert); err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", c.CertFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
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
	if c.ClientCAFile == "" {
		return k, nil
	}
	blocks, err := decodePEM(clients)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of clients: %s: %w", c.ClientCAFile, err)
	}
	for _, block := range blocks {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			k.authorities = append(k.authorities, authority)
		}
	}
	if len(k.authorities) == 0 {
		return nil, fmt.Errorf("read the authorities of clients: %s has no certificate in PEM", c.ClientCAFile)
	}
	return k, nil
}

// decodePEM returns an error for a file with a broken block; other parsers would skip the
// block and use the rest.
func decodePEM(content []byte) (blocks []*pem.Block, err error) {
	rest := content
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		blocks, rest = append(blocks, block), after
	}
	if bytes.Count(content, []byte("-----BEGIN ")) > len(blocks) || bytes.HasPrefix(bytes.TrimSpace(rest), []byte("-----")) {
		return nil, errors.New("a PEM block is broken or incomplete; write the whole file")
	}
	return blocks, nil
}

// trusts reports whether one of the current CAs is in the chain of a client's certificate,
// as verified in the handshake.
func (t *TLS) trusts(chain []*x509.Certificate) bool {
	if t == nil || len(chain) == 0 {
		return true
	}
	authorities := t.using.Load().authorities
	return slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(authorities, func(a *x509.Certificate) bool {
			// These two stay the same when the CA's certificate is renewed.
			return bytes.Equal(a.RawSubject, c.RawSubject) && bytes.Equal(a.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo)
		})
	})
}
