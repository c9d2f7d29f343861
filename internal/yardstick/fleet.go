package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The load has the shape of the Time Series Benchmark Suite's use case
// cpu-only: every host reports ten integers every ten seconds, with ten tags.
const (
	measurementOf = "cpu"
	interval      = 10 * time.Second // of event time, between two readings of a host
	fieldsOf      = 10
	variants      = 8 // of values; requests take one after the other
	heatUp        = 5 // most that a value of the random walk changes between two variants
	mostUsage     = 100
)

var fieldNames = [fieldsOf]string{
	"usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
	"usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
}

var tagNames = [...]string{
	"hostname", "region", "datacenter", "rack", "os", "arch", "team", "service", "service_version", "service_environment",
}

// values are those of one reading, in the order of fieldNames.
type values [fieldsOf]int64

// A fleet is the hosts and what they report.
type fleet struct {
	hosts []host
}

type host struct {
	name   string                // short
	key    string                // of its series in line protocol, by which Brim knows it
	tags   [len(tagNames)]string // in the order of tagNames
	values [variants]values
}

// newFleet returns the same fleet for the same number of hosts.
func newFleet(hosts int) *fleet {
	f := &fleet{hosts: make([]host, hosts)}
	for i := range f.hosts {
		random := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // pretended load
		h := &f.hosts[i]
		h.name = fmt.Sprintf("host_%d", i)
		h.tags = hostTags(h.name, random)
		h.key = seriesKey(&h.tags)
		for f := range fieldsOf {
			value := random.Int64N(mostUsage + 1)
			for v := range variants {
				h.values[v][f] = value
				value = min(max(value+random.Int64N(2*heatUp+1)-heatUp, 0), mostUsage)
			}
		}
	}
	return f
}

func hostTags(name string, random *rand.Rand) [len(tagNames)]string {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	region := one("us-east-1", "us-west-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-southeast-1", "ap-northeast-1", "sa-east-1")
	return [...]string{
		name, region, region + one("a", "b", "c"), strconv.Itoa(random.IntN(100)),
		one("Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"), one("x64", "x86"), one("SF", "NYC", "LON", "CHI"),
		strconv.Itoa(random.IntN(20)), strconv.Itoa(random.IntN(2)), one("production", "staging", "test"),
	}
}

// seriesKey is the measurement and the tags in the order of their names, the
// sensor's id of what comes as line protocol.
func seriesKey(tags *[len(tagNames)]string) string {
	pairs := make([]string, len(tags))
	for i, value := range tags {
		pairs[i] = "," + tagNames[i] + "=" + value
	}
	slices.Sort(pairs)
	return measurementOf + strings.Join(pairs, "")
}
