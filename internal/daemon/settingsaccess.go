package daemon

import (
	"fmt"
	"math"
	"strconv"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
)

// accessSettings say who is asked, and how much those may send who are not told
// otherwise.
type accessSettings struct {
	AccessFile string // empty: nobody is asked
	Quota      access.Quota
}

func (c *accessSettings) all() []Setting {
	return []Setting{
		{
			Name: "access-file", Kind: "FILE", set: config.Text(&c.AccessFile, nil),
			Usage: "YAML with who may do what, see brim token; read again when it changes; empty: nobody is asked",
		},
		{
			Name: "quota-requests", Kind: "N", Initial: "0", set: Rate(&c.Quota.RequestsPerSecond),
			Usage: "requests, and messages of gRPC streams, a second of each identity that has no such quota, or of all clients where nobody is asked; 0: no limit",
		},
		{
			Name: "quota-readings", Kind: "N", Initial: "0", set: Rate(&c.Quota.ReadingsPerSecond),
			Usage: "the same of readings a second; 0: no limit",
		},
		{
			Name: "quota-new-sensors", Kind: "N", Initial: "0", set: Rate(&c.Quota.NewSensorsPerSecond),
			Usage: "the same of sensors a second that nothing came from for an hour; 0: no limit",
		},
		{
			Name: "quota-active-sensors", Kind: "N", Initial: "0", set: Whole(&c.Quota.ActiveSensors, access.MaxActiveSensors),
			Usage: "the same of sensors in an hour; 0: no limit",
		},
	}
}

// openGuard returns who knows senders; nil where nobody is asked and nothing is
// limited.
func (d *daemon) openGuard() (*access.Guard, error) {
	c := &d.cfg.accessSettings
	if c.AccessFile == "" && c.Quota == (access.Quota{}) {
		return nil, nil
	}
	return access.Open(access.Config{Path: c.AccessFile, Default: c.Quota, Logger: d.log, Registerer: d.registry, TLS: d.tls})
}

// Rate takes a number of things a second, which may be a fraction; 0 is none.
func Rate(place *float64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= 0 && v <= access.MaxRate) {
			return fmt.Errorf("%q is not a number from 0 to %d", s, int64(access.MaxRate))
		}
		*place = v
		return nil
	}
}

// Whole takes a whole number, for what is kept with fractions.
func Whole(place *float64, most int) func(string) error {
	return func(s string) error {
		var n int
		if err := config.Count(&n, 0, min(most, math.MaxInt32))(s); err != nil {
			return err
		}
		*place = float64(n)
		return nil
	}
}
