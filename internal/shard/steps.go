package shard

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

const adminDatabase = "admin"

// create makes the database known to the cluster, and the collection as a daemon
// would make it.
func (p *planner) create() {
	c := p.cluster
	if p.sharding.Sharded() {
		return
	}
	if !p.known {
		p.add(adminDatabase, "the database may have sharded collections", bson.D{{Key: "enableSharding", Value: c.db.Name()}})
	}
	if p.info != nil {
		return
	}
	create := bson.D{{Key: "create", Value: p.stream.Name}}
	if p.stream.Storage == store.TimeSeries {
		create = append(create, c.seriesOptions(p.stream)...)
	}
	if p.stream.Compressor != "" {
		create = append(create, bson.E{Key: "storageEngine", Value: p.stream.Compressor.StorageEngine()})
	}
	p.add(c.db.Name(), "the stream's collection", append(create, majority()))
}

// majority makes a command of the database wait for a majority, as all others
// do by themselves.
func majority() bson.E {
	return bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: store.MajorityName}}}
}

// seriesOptions are what a time-series stream's collection is made with.
func (c *Cluster) seriesOptions(s Stream) bson.D {
	series := bson.D{{Key: "timeField", Value: store.TimeKey}, {Key: "metaField", Value: "sensor"}}
	if c.atLeast(6, 3) {
		seconds := int64(s.Granularity / time.Second)
		series = append(series, bson.E{Key: "bucketMaxSpanSeconds", Value: seconds}, bson.E{Key: "bucketRoundingSeconds", Value: seconds})
	} else {
		series = append(series, bson.E{Key: "granularity", Value: "seconds"})
	}
	out := bson.D{{Key: "timeseries", Value: series}}
	if s.Retention > 0 {
		out = append(out, bson.E{Key: "expireAfterSeconds", Value: int64(s.Retention / time.Second)})
	}
	return out
}

// addZones names the shards of zones, and their ranges. It comes before the
// collection is sharded: an empty one then begins with a chunk for each range,
// in its place.
func (p *planner) addZones() {
	for _, z := range p.asked.Zones {
		for _, name := range z.Shards {
			shard := p.cluster.shard(name)
			if slices.Contains(shard.Zones, z.Name) || p.planned("addShardToZone", name, z.Name) {
				continue
			}
			p.add(adminDatabase, "the zone's shards", bson.D{{Key: "addShardToZone", Value: name}, {Key: "zone", Value: z.Name}})
		}
	}
	for _, span := range p.zoneSpans() {
		if slices.ContainsFunc(p.zones, func(have zoneRange) bool {
			return have.Zone == span.Zone && compareAt(have.Min, span.Min) == 0 && compareAt(have.Max, span.Max) == 0
		}) {
			continue
		}
		p.add(adminDatabase, "the zone's sensors", bson.D{
			{Key: "updateZoneKeyRange", Value: p.namespace}, {Key: "min", Value: span.Min}, {Key: "max", Value: span.Max}, {Key: "zone", Value: span.Zone},
		})
	}
	if p.stream.Storage == store.TimeSeries && len(p.asked.Zones) > 0 && !p.cluster.atLeast(8, 2) {
		p.note("zones of time series: MongoDB's own tests of them begin with 8.2, and the cluster runs %s", p.cluster.Version)
	}
}

// planned reports whether a shard is given to a zone by a step already.
func (p *planner) planned(command, name, zone string) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Command[0].Key == command && s.Command[0].Value == name && s.Command[1].Value == zone
	})
}

// The versions from which on an empty hashed collection begins with a chunk for
// each shard, and no number of chunks is heeded.
const oneChunkMajor, oneChunkMinor = 7, 2

func (p *planner) shard() {
	if p.sharding.Sharded() {
		if !p.sharding.Key.KeepsSensorsTogether() {
			p.note("the key %s scatters the buckets of a sensor over the shards, all of which are asked for it", p.sharding.Key)
		}
		return
	}
	if p.info != nil {
		p.note("daemons see at their start by what a collection is spread: restart those that run, when this is done")
	}
	if !p.empty {
		p.add(p.cluster.db.Name(), "the index that the key needs", bson.D{
			{Key: "createIndexes", Value: p.stream.Name},
			{Key: "indexes", Value: bson.A{bson.D{{Key: "key", Value: bson.D(p.Key)}, {Key: "name", Value: "brim_shard_key"}}}},
			majority(),
		})
		p.note("the collection has readings: it begins on one shard, and the balancer moves chunks of it when the shards differ by more than three of them")
	}
	command := bson.D{{Key: "shardCollection", Value: p.name()}, {Key: "key", Value: bson.D(p.Key)}}
	switch {
	case p.asked.By != ByHash || p.asked.Chunks == 0 || !p.empty:
	case p.cluster.atLeast(oneChunkMajor, oneChunkMinor):
		p.note("MongoDB %s begins with one chunk for each shard, whatever number is asked for", p.cluster.Version)
	default:
		command = append(command, bson.E{Key: "numInitialChunks", Value: p.asked.Chunks})
	}
	p.add(adminDatabase, "the collection is spread by "+p.Key.String(), command)
	if p.asked.By == ByRange && p.empty && len(p.asked.Points) == 0 && len(p.asked.Zones) == 0 && len(p.zones) == 0 {
		p.note("without points and zones a collection in the order of ids begins as one chunk: all writes go to one shard until the balancer has moved some")
	}
}

// cuts are the keys at which chunks have to begin: at points and, where the
// cluster does not see to it, at the ends of zones.
func (p *planner) cuts() []bson.D {
	var cuts []bson.D
	for _, point := range p.asked.Points {
		cuts = append(cuts, p.at(point))
	}
	if p.sharding.Sharded() || !p.empty {
		for _, z := range p.zoneSpans() {
			cuts = append(cuts, z.Min)
			if _, last := z.Max[0].Value.(bson.MaxKey); !last {
				cuts = append(cuts, z.Max)
			}
		}
	}
	return tidy(cuts)
}

// tidy brings keys in order, each once.
func tidy(keys []bson.D) []bson.D {
	slices.SortFunc(keys, compareAt)
	return slices.CompactFunc(keys, func(a, b bson.D) bool { return compareAt(a, b) == 0 })
}

// bounds are the keys at which chunks begin before anything is split, without the
// first.
func (p *planner) bounds() []bson.D {
	var bounds []bson.D
	for _, c := range p.chunks {
		if _, first := c.Min[0].Value.(bson.MinKey); !first {
			bounds = append(bounds, c.Min)
		}
	}
	if !p.sharding.Sharded() && p.empty {
		for _, z := range slices.Concat(p.zones, p.zoneSpans()) { // those that stand already count as well
			if _, first := z.Min[0].Value.(bson.MinKey); !first {
				bounds = append(bounds, z.Min)
			}
			if _, last := z.Max[0].Value.(bson.MaxKey); !last {
				bounds = append(bounds, z.Max)
			}
		}
	}
	return tidy(bounds)
}

// split makes chunks begin where they have to.
func (p *planner) split() {
	if p.asked.By == ByHash {
		return
	}
	bounds := p.bounds()
	for _, cut := range p.cuts() {
		if _, there := slices.BinarySearchFunc(bounds, cut, compareAt); there {
			continue
		}
		p.add(adminDatabase, fmt.Sprintf("a chunk begins at %v", cut[0].Value), bson.D{{Key: "split", Value: p.namespace}, {Key: "middle", Value: cut}})
	}
}

// spread deals the chunks of an empty collection out to the shards, those in a
// zone to its own. What has readings is left to the balancer.
func (p *planner) spread() {
	if p.asked.By == ByHash || !p.empty || len(p.asked.Points) == 0 || len(p.cluster.Shards) == 1 {
		return
	}
	edges := tidy(slices.Concat(p.bounds(), p.cuts()))
	edges = slices.Concat([]bson.D{p.at(bson.MinKey{})}, edges, []bson.D{p.at(bson.MaxKey{})})
	next := make(map[string]int) // by zone
	for i := range len(edges) - 1 {
		from, to := edges[i], edges[i+1]
		zone, shards := p.zoneOf(from)
		target := shards[next[zone]%len(shards)]
		next[zone]++
		if p.lieOn(from) == target {
			continue
		}
		p.add(adminDatabase, "chunks are dealt out", bson.D{
			{Key: "moveChunk", Value: p.namespace}, {Key: "bounds", Value: bson.A{from, to}}, {Key: "to", Value: target},
		})
	}
}

// zoneOf returns the zone that a chunk lies in, and the shards that it may lie
// on.
func (p *planner) zoneOf(from bson.D) (zone string, shards []string) {
	for _, z := range slices.Concat(p.zones, p.zoneSpans()) {
		if compareAt(z.Min, from) <= 0 && compareAt(from, z.Max) < 0 {
			zone = z.Zone
		}
	}
	for _, s := range p.cluster.Shards {
		in := zone == "" || slices.Contains(s.Zones, zone) || p.planned("addShardToZone", s.Name, zone)
		if in {
			shards = append(shards, s.Name)
		}
	}
	if len(shards) == 0 { // a zone without shards: anything is as good
		shards = p.cluster.shardNames()
	}
	return zone, shards
}

// lieOn returns the shard that a key lies on already, "" if that is not known.
func (p *planner) lieOn(from bson.D) string {
	i, begins := slices.BinarySearchFunc(p.chunks, from, func(c chunk, key bson.D) int { return compareAt(c.Min, key) })
	if !begins {
		i--
	}
	if i < 0 || i >= len(p.chunks) {
		return ""
	}
	return p.chunks[i].Shard
}
