package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Credentials of a request. If it has both, the secret decides.
type Credentials struct {
	Secret      string            // a token; empty: none
	Certificate *x509.Certificate // of the client, verified in the handshake; nil: none

	chain   []*x509.Certificate // from the certificate to the authority, as verified
	problem string              // what is malformed, if anything
}

// OfRequest returns the credentials of a request over HTTP or gRPC: its header Authorization in
// one of three schemes, or on the paths of InfluxDB 1 the parameter p, and a verified client
// certificate.
//
//	Authorization: Bearer TOKEN
//	Authorization: Token TOKEN          InfluxDB 2; or Token USER:TOKEN
//	Authorization: Basic USER:TOKEN     in base64: InfluxDB 1 and browsers
//	/write?u=USER&p=TOKEN               InfluxDB 1
//
// USER is ignored. Tokens in a URL end up in logs, so other paths ignore p.
func OfRequest(r *http.Request) Credentials {
	var c Credentials
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.VerifiedChains[0]) > 0 {
		c.chain = r.TLS.VerifiedChains[0]
		c.Certificate = c.chain[0]
	}
	switch sent := r.Header["Authorization"]; {
	case len(sent) > 1:
		c.problem = fmt.Sprintf("the request has %d headers Authorization; allowed: one", len(sent))
	case len(sent) == 1:
		c.Secret, c.problem = secretOf(sent[0])
	case r.URL != nil && r.URL.RawQuery != "" && (r.URL.Path == "/write" || r.URL.Path == "/query"):
		c.Secret = r.URL.Query().Get("p")
	}
	return c
}

// secretOf returns the token in the value of an Authorization header, or what is
// wrong with the value.
func secretOf(value string) (secret, problem string) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(value), " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(scheme) {
	case "bearer":
	case "token":
		rest = rest[strings.LastIndexByte(rest, ':')+1:]
	case "basic":
		_, token, ok := (&http.Request{Header: http.Header{"Authorization": {value}}}).BasicAuth()
		if !ok {
			return "", "what follows Basic in the header Authorization is not NAME:TOKEN in base64"
		}
		rest = token
	default: // the value is not repeated: it may be a token without its scheme
		return "", "the scheme of the header Authorization is unknown; allowed: Bearer TOKEN, Token TOKEN, and Basic with NAME:TOKEN in base64"
	}
	if rest == "" {
		return "", "the header Authorization has no token"
	}
	return rest, ""
}

const (
	// tokenPrefix lets people and secret scanners recognize a token.
	tokenPrefix = "brim_"
	hashPrefix  = "sha256:"
)

// NewToken returns a new token: brim_ and 256 random bits in base64url.
func NewToken() (string, error) {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:]), nil
}

// HashOf returns the hash of a token for an access file. One round of a fast hash is
// enough for 256 random bits; slow hashes are for passwords, which can be guessed.
func HashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// The kinds of names in a certificate, in the order in which they are looked up: the
// first one that an identity has decides. The subject comes last, because authorities
// verify it least. Names are compared byte by byte, except that DNS names are
// case-insensitive; a wildcard matches only itself.
const (
	kindURI   = "uri"
	kindDNS   = "dns"
	kindEmail = "email"
	kindCN    = "cn"
)

const maxCertificateName = 1 << 10 // bytes, with the kind

// checkCertificate checks a value of the key certificate: KIND:NAME, or a common name
// without a colon.
func checkCertificate(value string) error {
	kind, name, ok := strings.Cut(value, ":")
	if !ok {
		kind, name = kindCN, value
	}
	switch {
	case kind != kindURI && kind != kindDNS && kind != kindEmail && kind != kindCN:
		return fmt.Errorf("%q is not KIND:NAME; allowed kinds are cn, dns, uri and email, as in cn:edge-7; a common name without a colon may stand alone", excerpt(value))
	case name == "":
		return errors.New("the name is empty")
	case len(value) > maxCertificateName:
		return fmt.Errorf("the name has %d bytes; allowed: %d", len(value), maxCertificateName)
	case !printable(name):
		return errors.New("the name has unprintable characters")
	}
	return nil
}

// certificateKey returns the canonical form of a name, in which names are compared.
func certificateKey(value string) string {
	kind, name, ok := strings.Cut(value, ":")
	switch {
	case !ok:
		return kindCN + ":" + value
	case kind == kindDNS:
		return kindDNS + ":" + strings.ToLower(name)
	}
	return value
}

// certificateNames returns the names of a certificate in canonical form, in the order of
// the kinds above.
func certificateNames(c *x509.Certificate) []string {
	var names []string
	for _, u := range c.URIs {
		names = append(names, kindURI+":"+u.String())
	}
	for _, n := range c.DNSNames {
		names = append(names, kindDNS+":"+strings.ToLower(n))
	}
	for _, a := range c.EmailAddresses {
		names = append(names, kindEmail+":"+a)
	}
	if c.Subject.CommonName != "" {
		names = append(names, kindCN+":"+c.Subject.CommonName)
	}
	return names
}
