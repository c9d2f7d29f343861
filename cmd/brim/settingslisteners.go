package main

import (
	"errors"
	"fmt"
)

// listenerSettings are those of the three listeners beside their addresses.
type listenerSettings struct {
	TLSCert, TLSKey, TLSClientCA string // files; empty: without
	TLSRequireClientCert         switchPosition
	AllowUnauthenticated         switchPosition

	MaxConnections           int // of each listener for readings
	MaxConnectionsPerAddress int // 0: most of them
}

// A connection that waits takes 7 KiB of memory without TLS and 50 KiB with it,
// so 4096 of a listener take 28 to 200 MiB; with both listeners full that is
// 8192 open files, where systemd allows 524,288 and most shells can have as many.
const defaultMaxConnections = "4096"

func (c *listenerSettings) all() []setting {
	return []setting{
		{
			name: "tls-cert", kind: "FILE", set: text(&c.TLSCert, nil),
			usage: "certificate of all listeners in PEM, the authorities between behind it; read again when it changes; empty: no TLS",
		},
		{name: "tls-key", kind: "FILE", set: text(&c.TLSKey, nil), usage: "key of --tls-cert in PEM"},
		{
			name: "tls-client-ca", kind: "FILE", set: text(&c.TLSClientCA, nil),
			usage: "authorities in PEM whose client certificates are taken; who a certificate is, the access file says",
		},
		{
			name: "tls-require-client-cert", kind: "on|off", initial: "off", set: choice(&c.TLSRequireClientCert, on, off),
			usage: "refuse connections without a client certificate, probes and /metrics among them",
		},
		{
			name: "allow-unauthenticated", kind: "on|off", initial: "off", set: choice(&c.AllowUnauthenticated, on, off),
			usage: "let listeners open beyond this machine although nobody is asked who they are",
		},
		{
			name: "max-connections", kind: "N", initial: defaultMaxConnections, set: count(&c.MaxConnections, 8, 1_000_000),
			usage: "connections to each listener for readings; one more is closed at once",
		},
		{
			name: "max-connections-per-address", kind: "N", initial: "0", set: count(&c.MaxConnectionsPerAddress, 0, 1_000_000),
			usage: "connections from one address, of IPv6 a /64; 0: three quarters of --max-connections",
		},
	}
}

// checkListeners checks what no setting can check alone.
func (c *listenerSettings) checkListeners() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("tls-cert and tls-key belong together; give both, or neither")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("tls-client-ca needs TLS; give tls-cert and tls-key, too")
	case c.TLSRequireClientCert == on && c.TLSClientCA == "":
		return errors.New("tls-require-client-cert needs the authority of those certificates; give tls-client-ca, too")
	case c.MaxConnectionsPerAddress > c.MaxConnections:
		return fmt.Errorf("max-connections-per-address %d is more than max-connections %d", c.MaxConnectionsPerAddress, c.MaxConnections)
	}
	return nil
}
