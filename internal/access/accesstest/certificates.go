// Package accesstest makes certificates for tests.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // its own certificate
}

// A Pair is a certificate with its key, in PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority returns an authority with a name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &Authority{t: t, cert: cert, key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Server signs a certificate for 127.0.0.1, ::1 and localhost that became valid
// an hour ago and expires at until.
func (a *Authority) Server(name string, until time.Time) Pair {
	a.t.Helper()
	return a.sign(name, x509.ExtKeyUsageServerAuth, time.Now().Add(-time.Hour), until)
}

// Early signs a certificate like Server's that is not yet valid.
func (a *Authority) Early(name string) Pair {
	a.t.Helper()
	return a.sign(name, x509.ExtKeyUsageServerAuth, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
}

// Client signs a client certificate with this common name.
func (a *Authority) Client(name string) Pair {
	a.t.Helper()
	return a.sign(name, x509.ExtKeyUsageClientAuth, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

func (a *Authority) sign(name string, usage x509.ExtKeyUsage, from, until time.Time) Pair {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if usage == x509.ExtKeyUsageServerAuth {
		template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}),
	}
}

// Pool returns a pool with this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// TLS returns the pair for crypto/tls.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	require.NoError(t, err)
	return pair
}

// Write writes the pair to cert.pem and key.pem in dir, and returns their paths.
func (p Pair) Write(t testing.TB, dir string) (cert, key string) {
	t.Helper()
	return File(t, dir, "cert.pem", p.Cert), File(t, dir, "key.pem", p.Key)
}

// File writes a file that only its owner may read, and returns its path.
func File(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}
