package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// openError says that a listener would be open to all, and what to do.
func openError(address, what string) error {
	return fmt.Errorf("%s would open %s beyond this machine, and nobody is asked who they are: say who may do what with --access-file FILE (`brim token create` makes one), "+
		"stay on this machine with an address like 127.0.0.1:%s, or let everybody in with --allow-unauthenticated on", address, what, portOf(address))
}

// CheckOpen returns what serve would refuse to open, as far as the text of the
// addresses tells: where a name leads is not looked up.
func (c *Config) CheckOpen() []error {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	var problems []error
	for _, p := range new(listeners).places(&c.Settings) {
		if !plainlyOpen(p.address) {
			continue
		}
		at := slices.IndexFunc(c.effective, func(e effective) bool { return "--"+e.Name == p.flag })
		problems = append(problems, c.effective[at].problem(c.effective[at].Name, openError(p.address, p.what)))
	}
	return problems
}

// plainlyOpen reports whether an address is plainly one that other machines
// reach; false of a name.
func plainlyOpen(address string) bool {
	host, _, _ := net.SplitHostPort(address) // it was checked when it was set
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !ip.Unmap().IsLoopback()
}
