package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	hostsOf = 1000 // of a fleet, so that a request is a step of all
	hourly  = "1h"

	// Where the daemon's default stream is stored, and the raw documents as well,
	// in a database of their own.
	brimDatabase = "brim"
	collection   = "readings"
)

// lines holds line protocol against raw inserts.
func (y *yardstick) lines(ctx context.Context) ([]row, error) {
	f := newFleet(hostsOf)
	poster, err := newLinePoster(y.connections, f)
	if err != nil {
		return nil, err
	}
	var documents, encoded []*page
	for range rawWriters {
		documents = append(documents, documentPage(f.hosts))
		p, err := encodedPage(f.hosts)
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, p)
	}
	var pairs []linesPair
	for i := range y.pairs {
		y.note("lines %d of %d\n", i+1, y.pairs)
		pair, err := y.linesPair(ctx, poster, documents, encoded, i)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, *pair)
	}
	y.explain(rawExplained)
	y.explain(timeExplained)
	return linesRows(pairs), nil
}

// A linesPair is what came of one mongod.
type linesPair struct {
	raw, encoded *insertion
	brim         *passage
}

// linesPair measures one side after the other, the sides changing places from
// pair to pair.
func (y *yardstick) linesPair(ctx context.Context, s sender, documents, encoded []*page, number int) (p *linesPair, err error) {
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	p = &linesPair{}
	raws := []func() error{
		func() (err error) {
			p.raw, err = y.raw(ctx, r, "bson.D", documents)
			return err
		},
		func() (err error) {
			p.encoded, err = y.raw(ctx, r, "encoded beforehand", encoded)
			return err
		},
	}
	brim := func() (err error) {
		if err := r.settle(ctx); err != nil {
			return err
		}
		stop := y.startProfile(ctx, r, number)
		p.brim, err = y.pass(ctx, r, "line protocol", s)
		return errors.Join(err, stop())
	}
	for _, side := range linesOrder(number, brim, raws[0], raws[1]) {
		if err := side(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// linesOrder is the order within a pair: Brim comes last in one and first in
// the next, and the ways to insert change places every second time, so that
// each of them follows Brim as often as the other.
func linesOrder[T any](number int, brim, raw, encoded T) []T {
	first, second := raw, encoded
	if number/2%2 == 1 {
		first, second = encoded, raw
	}
	if number%2 == 1 {
		return []T{brim, first, second}
	}
	return []T{first, second, brim}
}

// raw inserts into a fresh collection of another database of the rig's mongod.
func (y *yardstick) raw(ctx context.Context, r *rig, what string, pages []*page) (*insertion, error) {
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	i, err := r.insertInto(ctx, r.client.Database(rawDatabase).Collection(collection), pages, y.time)
	if err != nil {
		return nil, err
	}
	y.note("  raw insertMany, %s: %s documents/s; us CPU: mongod %.2f, client %.2f\n", what, thousands(i.Rate, 0), i.MongodCPU, i.Client)
	return i, nil
}

// pass sends through Brim and tells what came of it.
func (y *yardstick) pass(ctx context.Context, r *rig, what string, s sender) (*passage, error) {
	p, err := r.pass(ctx, s, y.time)
	if err != nil {
		return nil, err
	}
	y.note("  brim, %s: %s readings/s, %.1f an update; us CPU: brim %.2f, mongod %.2f, generator %.2f; %.2f allocations\n",
		what, thousands(p.Rate, 0), p.Merged, p.BrimCPU, p.MongodCPU, p.Generator, p.Allocations)
	return p, nil
}

func linesRows(pairs []linesPair) []row {
	each := func(value func(p *linesPair) float64) []float64 { return apply(pairs, value) }
	mid := func(value func(p *linesPair) float64) float64 { return median(each(value)) }
	ratio := newRow("TSBS cpu-only over line protocol, stored in hourly buckets, against raw `insertMany` of a document per reading", ">= 1.0x, aim 1.2x", "x", 2,
		each(func(p *linesPair) float64 { return p.brim.Rate / p.raw.Rate }))
	rate := mid(func(p *linesPair) float64 { return p.brim.Rate })
	ratio.remark("%s lines/s to %s documents/s", thousands(rate, 0), thousands(mid(func(p *linesPair) float64 { return p.raw.Rate }), 0))
	ratio.remark("merge factor %.1f readings an update", mid(func(p *linesPair) float64 { return p.brim.Merged }))
	ratio.remark("%s", paceRemark(rate))
	ratio.remark("%s", processorRemark(pairs))
	ratio.remark("%.2fx documents encoded beforehand (%s/s)", mid(func(p *linesPair) float64 { return p.brim.Rate / p.encoded.Rate }),
		thousands(mid(func(p *linesPair) float64 { return p.encoded.Rate }), 0))
	processor := newRow("Brim's own CPU per line of ten fields, user and system, until stored", "<= 3 us, aim 2", "us", 2,
		each(func(p *linesPair) float64 { return p.brim.BrimCPU }))
	allocations := newRow("allocations per reading, line protocol, all of the daemon", "<= 2, aim 0", "", 2,
		each(func(p *linesPair) float64 { return p.brim.Allocations }))
	return []row{ratio, processor, allocations}
}

// paceRemark says how fast event time goes at a rate of lines a second.
func paceRemark(rate float64) string {
	speedup := rate * interval.Seconds() / hostsOf
	return fmt.Sprintf("event time runs %sx as fast as the clock, an hourly window lasts %.1f s; a fleet in real time with this rate has %.1f M sensors at %v",
		thousands(speedup, 0), time.Hour.Seconds()/speedup, rate*interval.Seconds()/1e6, interval)
}

func processorRemark(pairs []linesPair) string {
	mid := func(value func(p *linesPair) float64) float64 { return median(apply(pairs, value)) }
	return fmt.Sprintf("CPU us a line: brim %.2f, mongod %.2f, generator %.2f; a document: mongod %.2f, client %.2f",
		mid(func(p *linesPair) float64 { return p.brim.BrimCPU }), mid(func(p *linesPair) float64 { return p.brim.MongodCPU }), mid(func(p *linesPair) float64 { return p.brim.Generator }),
		mid(func(p *linesPair) float64 { return p.raw.MongodCPU }), mid(func(p *linesPair) float64 { return p.raw.Client }))
}

// apply returns a value of each.
func apply[T any](of []T, value func(*T) float64) []float64 {
	values := make([]float64, len(of))
	for i := range of {
		values[i] = value(&of[i])
	}
	return values
}
