package daemon

import (
	"errors"
	"fmt"

	"github.com/brim-telemetry/brim/internal/config"
)

// listenerSettings are those of the three listeners beside their addresses.
type listenerSettings struct {
	TLSCert, TLSKey, TLSClientCA string // files; empty: without
	TLSRequireClientCert         SwitchPosition
	AllowUnauthenticated         SwitchPosition

	MaxConnections           int // of each listener for readings
	MaxConnectionsPerAddress int // 0: most of them
}

// A connection that waits takes 7 KiB of memory without TLS and 50 KiB with it,
// so 4096 of a listener take 28 to 200 MiB; with both listeners full that is
// 8192 open files, where systemd allows 524,288 and most shells can have as many.
const defaultMaxConnections = "4096"

func (c *listenerSettings) all() []Setting {
	return []Setting{
		{
			Name: "tls-cert", Kind: "FILE", set: config.Text(&c.TLSCert, nil),
			Usage: "certificate of all listeners in PEM, the authorities between behind it; read again when it changes; empty: no TLS",
		},
		{Name: "tls-key", Kind: "FILE", set: config.Text(&c.TLSKey, nil), Usage: "key of --tls-cert in PEM"},
		{
			Name: "tls-client-ca", Kind: "FILE", set: config.Text(&c.TLSClientCA, nil),
			Usage: "authorities in PEM whose client certificates are taken; who a certificate is, the access file says",
		},
		{
			Name: "tls-require-client-cert", Kind: "on|off", Initial: "off", set: config.Choice(&c.TLSRequireClientCert, On, Off),
			Usage: "refuse connections without a client certificate, probes and /metrics among them",
		},
		{
			Name: "allow-unauthenticated", Kind: "on|off", Initial: "off", set: config.Choice(&c.AllowUnauthenticated, On, Off),
			Usage: "let listeners open beyond this machine although nobody is asked who they are",
		},
		{
			Name: "max-connections", Kind: "N", Initial: defaultMaxConnections, set: config.Count(&c.MaxConnections, 8, 1_000_000),
			Usage: "connections to each listener for readings; one more is closed at once",
		},
		{
			Name: "max-connections-per-address", Kind: "N", Initial: "0", set: config.Count(&c.MaxConnectionsPerAddress, 0, 1_000_000),
			Usage: "connections from one address, of IPv6 a /64; 0: three quarters of --max-connections",
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
	case c.TLSRequireClientCert == On && c.TLSClientCA == "":
		return errors.New("tls-require-client-cert needs the authority of those certificates; give tls-client-ca, too")
	case c.MaxConnectionsPerAddress > c.MaxConnections:
		return fmt.Errorf("max-connections-per-address %d is more than max-connections %d", c.MaxConnectionsPerAddress, c.MaxConnections)
	}
	return nil
}
