package daemon

import (
	"fmt"
	"net"

	"github.com/brim-telemetry/brim/internal/peers"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/pkg/client"
)

// advertised parses --advertise-addr, which may be empty.
func advertised(place *string) func(string) error {
	return func(s string) error {
		*place = s
		if s == "" {
			return nil
		}
		return peers.CheckAddress(s)
	}
}

// advertised returns the address at which other daemons reach this one; empty if there is none,
// or no listener, as when a journal is replayed.
func (d *daemon) advertised() string {
	host, port, err := net.SplitHostPort(d.cfg.AdvertiseAddr)
	if err != nil || d.listeners.http == nil {
		return ""
	}
	if port == "0" {
		port = portOf(d.listeners.http.Addr().String())
	}
	return net.JoinHostPort(host, port)
}

// inMongoDB returns the names of the streams that are stored in MongoDB.
func (c *Settings) inMongoDB() (names []string) {
	for _, s := range c.Streams {
		if s.Storage != store.Memory {
			names = append(names, s.Name)
		}
	}
	return names
}

// newPeers returns the other daemons of the database, found by their claims.
func (d *daemon) newPeers(claims *claim.Claims) (*peers.Peers, error) {
	secure, err := client.LoadTLS(d.cfg.TLSPeerCA, "", "")
	if err != nil {
		return nil, fmt.Errorf("set up connections to other daemons (--tls-peer-ca): %w", err)
	}
	if d.tls != nil {
		secure.GetClientCertificate = d.tls.ClientCertificate
	}
	return peers.New(peers.Config{
		Address: d.advertised(), Streams: d.cfg.inMongoDB(), TLS: secure, RequireTLS: d.tls != nil,
		Live:   claims.Others,
		Logger: d.log, Registerer: d.registry,
	}), nil
}
