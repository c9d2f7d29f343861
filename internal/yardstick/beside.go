package main

import (
	"context"
	"errors"
)

// A besidePair is what came of another way in and of line protocol, one after
// the other through the same daemon.
type besidePair struct{ other, line *passage }

// beside holds a way in against line protocol.
func (y *yardstick) beside(ctx context.Context, name string, other sender, f *fleet) ([]besidePair, error) {
	line, err := newLinePoster(y.connections, f)
	if err != nil {
		return nil, err
	}
	pairs := make([]besidePair, y.pairs)
	for i := range pairs {
		y.note("%s %d of %d\n", name, i+1, y.pairs)
		if err := y.besidePair(ctx, []way{{name, other, &pairs[i].other}, {"line protocol", line, &pairs[i].line}}, i); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}

// A way is a way in, and where to put what came of it.
type way struct {
	name   string
	sender sender
	came   **passage
}

// besidePair measures two ways; they change places from pair to pair.
func (y *yardstick) besidePair(ctx context.Context, ways []way, number int) (err error) {
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for i := range ways {
		w := &ways[(i+number)%len(ways)]
		if err := r.settle(ctx); err != nil {
			return err
		}
		if *w.came, err = y.pass(ctx, r, w.name, w.sender); err != nil {
			return err
		}
	}
	return r.checkSensors(ctx, hostsOf)
}

func (y *yardstick) grpc(ctx context.Context) ([]row, error) {
	f := newFleet(hostsOf)
	s, err := newCompactStreamer(y.connections, f)
	if err != nil {
		return nil, err
	}
	pairs, err := y.beside(ctx, "compact gRPC", s, f)
	if err != nil {
		return nil, err
	}
	ratio := besideRow("the same over gRPC streaming, compact form, against line protocol", ">= 0.9x", pairs)
	ratio.remark("a series for each host with one reading; %d connections, up to %d unanswered requests of 1,000 on each (line protocol: 1)", y.connections, window)
	y.explain(waysExplained)
	allocations := newRow("allocations per reading, compact gRPC, all of the daemon", "<= 2, aim 0", "", 2,
		apply(pairs, func(p *besidePair) float64 { return p.other.Allocations }))
	return []row{ratio, allocations}, nil
}

func (y *yardstick) ndjson(ctx context.Context) ([]row, error) {
	f := newFleet(hostsOf)
	s, err := newNDJSONPoster(y.connections, f)
	if err != nil {
		return nil, err
	}
	pairs, err := y.beside(ctx, "NDJSON", s, f)
	if err != nil {
		return nil, err
	}
	ratio := besideRow("the same as NDJSON, against line protocol", ">= 0.6x", pairs)
	ratio.remark("%s allocations per reading", thousands(median(apply(pairs, func(p *besidePair) float64 { return p.other.Allocations })), 2))
	y.explain(waysExplained)
	return []row{ratio}, nil
}

func besideRow(what, bar string, pairs []besidePair) row {
	mid := func(value func(p *besidePair) float64) float64 { return median(apply(pairs, value)) }
	r := newRow(what, bar, "x", 2, apply(pairs, func(p *besidePair) float64 { return p.other.Rate / p.line.Rate }))
	r.remark("%s readings/s to %s lines/s", thousands(mid(func(p *besidePair) float64 { return p.other.Rate }), 0), thousands(mid(func(p *besidePair) float64 { return p.line.Rate }), 0))
	r.remark("merge factor %.1f (line protocol: %.1f)", mid(func(p *besidePair) float64 { return p.other.Merged }), mid(func(p *besidePair) float64 { return p.line.Merged }))
	r.remark("CPU us a reading: brim %.2f, mongod %.2f, generator %.2f (brim, line protocol: %.2f)",
		mid(func(p *besidePair) float64 { return p.other.BrimCPU }), mid(func(p *besidePair) float64 { return p.other.MongodCPU }),
		mid(func(p *besidePair) float64 { return p.other.Generator }), mid(func(p *besidePair) float64 { return p.line.BrimCPU }))
	return r
}
