package shard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// By is how the sensors are spread.
type By string

// The ways to spread sensors.
const (
	ByHash  By = "hash"  // evenly, whatever their ids are
	ByRange By = "range" // in the order of their ids: for zones
)

// Bys returns the ways to spread sensors.
func Bys() []By { return []By{ByHash, ByRange} }

// MaxChunks is how many chunks a plan makes at most: each is a command or two.
const MaxChunks = 8192

// Options say how a stream is to be spread.
type Options struct {
	By           By       // empty: as it is already, else by range if there are zones or points, else by hash
	Chunks       int      // to begin with, all together; 0: MongoDB's own choice
	Points       []string // sensor ids at which chunks begin, for ByRange; in order, each once
	Zones        []Zone
	ExistingData bool // a collection with readings may be sharded
}

// A Zone keeps the sensors whose ids begin with a prefix on some shards.
type Zone struct {
	Name   string
	Shards []string
	Prefix string
}

// ParseZone reads NAME=SHARD,SHARD:PREFIX. The prefix may have colons.
func ParseZone(text string) (Zone, error) {
	name, rest, named := strings.Cut(text, "=")
	shards, prefix, split := strings.Cut(rest, ":")
	z := Zone{Name: name, Shards: strings.Split(shards, ","), Prefix: prefix}
	if !named || !split || name == "" || prefix == "" || slices.Contains(z.Shards, "") {
		return Zone{}, fmt.Errorf("%q is not NAME=SHARD,SHARD:PREFIX, like north=shard01,shard02:n-", text)
	}
	return z, nil
}

// span is where the zone's sensors lie in the order of ids; To is empty where
// nothing follows.
func (z Zone) span() store.NameSpan { return store.SpanOf(telemetry.SensorQuery{Prefix: z.Prefix}) }

// check refuses options that do not go together.
func (o Options) check() error {
	if o.Chunks < 0 || o.Chunks > MaxChunks {
		return fmt.Errorf("%d chunks are out of range; allowed are 0 to %d", o.Chunks, MaxChunks)
	}
	if len(o.Points) >= MaxChunks {
		return fmt.Errorf("%d points are too many; allowed are %d", len(o.Points), MaxChunks-1)
	}
	if o.By == ByHash && (len(o.Points) > 0 || len(o.Zones) > 0) {
		return errors.New("zones and points of sensor ids need a key in the order of ids, which a hash does not keep; spread by range")
	}
	zones := slices.Clone(o.Zones)
	slices.SortFunc(zones, func(a, b Zone) int { return strings.Compare(a.Prefix, b.Prefix) })
	for i := 1; i < len(zones); i++ {
		if strings.HasPrefix(zones[i].Prefix, zones[i-1].Prefix) {
			return fmt.Errorf("the prefixes %q and %q of zones overlap; give prefixes of which none begins with another", zones[i-1].Prefix, zones[i].Prefix)
		}
	}
	return nil
}

// MaxIDs is how many sensor ids are read to find points among them.
const MaxIDs = 20_000_000

// ReadIDs reads sensor ids, one a line.
func ReadIDs(r io.Reader) ([]string, error) {
	var ids []string
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		id := strings.TrimSuffix(lines.Text(), "\r")
		if id == "" {
			continue
		}
		if refusal := telemetry.CheckSensor([]byte(id)); refusal != nil {
			return nil, fmt.Errorf("line %d: %w", n, refusal)
		}
		if len(ids) == MaxIDs {
			return nil, fmt.Errorf("there are more than %d ids; give a sample of them, in any order", MaxIDs)
		}
		ids = append(ids, id)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read sensor ids: %w", err)
	}
	return ids, nil
}

// PointsOf returns up to chunks-1 ids that cut the sensors, of which ids are some,
// into parts of as many.
func PointsOf(ids []string, chunks int) []string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	points := make([]string, 0, max(chunks-1, 0))
	for i := 1; i < chunks && len(ids) > 0; i++ {
		p := ids[i*len(ids)/chunks]
		if p != ids[0] && (len(points) == 0 || points[len(points)-1] != p) {
			points = append(points, p)
		}
	}
	return points
}

// Digits that ids may be numbered with, in the order of their bytes.
const (
	Decimal = "0123456789"
	Hex     = "0123456789abcdef"
)

// PointsBehind returns up to chunks-1 points that cut the ids that begin with the
// prefix and go on with digits, all as frequent in every place.
func PointsBehind(prefix, digits string, chunks int) []string {
	places, parts := 0, 1
	for parts < chunks {
		places, parts = places+1, parts*len(digits)
	}
	points := make([]string, 0, max(chunks-1, 0))
	for i := 1; i < chunks; i++ {
		n, tail := i*parts/chunks, make([]byte, places)
		for at := places - 1; at >= 0; at-- {
			tail[at], n = digits[n%len(digits)], n/len(digits)
		}
		points = append(points, prefix+string(tail))
	}
	return points
}
