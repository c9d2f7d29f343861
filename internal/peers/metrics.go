package peers

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// States of peers; label values.
const (
	stateReachable    = "reachable"
	stateUnreachable  = "unreachable"
	stateUnregistered = "unregistered" // without an address
)

func (p *Peers) register(factory promauto.Factory) {
	p.asked = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "brim_peer_requests_total",
		Help: "Requests of queries to other daemons for readings that they have not stored yet, by outcome. Unless it is answered, the query's answer names the daemon in Brim-Incomplete.",
	}, []string{"outcome"})
	for _, outcome := range []string{answered, timedOut, unreachable, refused, busy, malformed, skipped} {
		p.asked.WithLabelValues(outcome)
	}
	for _, state := range []string{stateReachable, stateUnreachable, stateUnregistered} {
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_peers", Help: "Other live daemons of the database; unregistered: without --advertise-addr.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return p.count(state) })
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_peer_age_limit_seconds",
		Help: "Age at which readings must be sent to MongoDB because other daemons cannot ask this one for them; 0: no such limit.",
	}, func() float64 { return p.LimitAge().Seconds() })
}

// count returns how many peers are in a state.
func (p *Peers) count(state string) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0.0
	for _, one := range p.known {
		is := stateReachable
		switch {
		case one.Daemon == "" || one.Address == "":
			is = stateUnregistered
		case one.down:
			is = stateUnreachable
		}
		if is == state {
			n++
		}
	}
	return n
}
