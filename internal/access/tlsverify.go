package access

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"sync"
	"time"
)

// verdicts are the certificates that were verified against authorities that have
// changed since the start: once each, and not with every request.
type verdicts struct {
	mu sync.Mutex
	of map[*x509.Certificate]bool
}

// maxVerdicts is room for as many certificates as a listener takes connections.
const maxVerdicts = 4096

// trusts reports whether the authorities of now signed a certificate of a client.
// Chain is as the handshake verified it: the client's, and those behind it.
func (t *TLS) trusts(chain []*x509.Certificate) bool {
	if t == nil || len(chain) == 0 {
		return true
	}
	m := t.current()
	if m.verified == nil {
		return true
	}
	return m.verified.look(chain, m.clients, t.config.Now())
}

func (v *verdicts) look(chain []*x509.Certificate, authorities *x509.CertPool, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	trusted, known := v.of[chain[0]]
	if known {
		return trusted
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if len(v.of) >= maxVerdicts {
		clear(v.of)
	}
	v.of[chain[0]] = err == nil
	return err == nil
}

// wholePEM refuses a file that ends inside a block, or has a broken one: the others
// would be taken alone.
func wholePEM(content []byte) error {
	blocks, rest := 0, content
	for {
		block, after := pem.Decode(rest)
		if block == nil {
			break
		}
		blocks, rest = blocks+1, after
	}
	begun := bytes.Count(content, []byte("-----BEGIN "))
	if begun > blocks || bytes.HasPrefix(bytes.TrimSpace(rest), []byte("-----")) {
		return errors.New("a block of PEM is broken, or the file ends before it does; write the whole file")
	}
	return nil
}
