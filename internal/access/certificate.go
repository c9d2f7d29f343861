package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// The kinds of names that a certificate can have, in the order in which they are
// looked up: the first one that an identity has decides. Names of the subject
// come last, because authorities check them least.
const (
	kindURI   = "uri"   // a subject alternative name, compared byte by byte
	kindDNS   = "dns"   // the same, without regard to case; a wildcard stands only for itself
	kindEmail = "email" // the same, byte by byte
	kindCN    = "cn"    // the subject's common name, byte by byte
)

// maxCertificateName is the most bytes of a name, with its kind.
const maxCertificateName = 1 << 10

// checkCertificate looks at a value of the key certificate: KIND:NAME, or a
// common name without a colon.
func checkCertificate(value string) error {
	kind, name, ok := strings.Cut(value, ":")
	if !ok {
		kind, name = kindCN, value
	}
	switch {
	case kind != kindURI && kind != kindDNS && kind != kindEmail && kind != kindCN:
		return fmt.Errorf("%q is not KIND:NAME; allowed kinds are cn, dns, uri and email, as in cn:edge-7; a common name that has no colon may stand alone", shownText(value))
	case name == "":
		return errors.New("the name is empty")
	case len(value) > maxCertificateName:
		return fmt.Errorf("the name has %d bytes; allowed are %d", len(value), maxCertificateName)
	case !printable(name):
		return errors.New("the name has characters that cannot be printed")
	}
	return nil
}

// certificateKey is the form in which names are compared.
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

// certificateNames returns the names of a certificate in that form, in the order
// in which they are looked up.
func certificateNames(c *x509.Certificate) []string {
	names := make([]string, 0, len(c.URIs)+len(c.DNSNames)+len(c.EmailAddresses)+1)
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
