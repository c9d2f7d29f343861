package mongostest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Cluster is a Server that keeps a catalog, as the pages of MongoDB's manual
// on the config database and on sharding commands describe it: shardCollection
// enters a collection, split divides a chunk, moveChunk moves one. Its documents
// are those that a test puts in.
type Cluster struct {
	*Server
	Version string   // of buildInfo
	Shards  []string // names
	Mode    string   // of the balancer

	// Documents are those of collections, by namespace; a collection that has an
	// entry exists.
	Documents map[string][]bson.D
	Options   map[string]bson.D // of collections, as listCollections tells them
	Sizes     map[string]int64  // by shard: bytes that $collStats tells
	// Refuse is asked first; an answer other than nil is given instead.
	Refuse Answerer

	databases   []bson.D // of config
	collections []bson.D
	chunks      []bson.D
	tags        []bson.D
	zones       map[string][]string // by shard
}

// StartCluster starts a cluster with these shards, and nothing in it.
func StartCluster(t testing.TB, version string, shards ...string) *Cluster {
	t.Helper()
	c := &Cluster{
		Version: version, Shards: shards, Mode: "full", Documents: make(map[string][]bson.D), Options: make(map[string]bson.D),
		Sizes: make(map[string]int64), zones: make(map[string][]string),
	}
	c.Server = Start(t, c.answer)
	return c
}

// Change lets a test change the cluster while clients are connected.
func (c *Cluster) Change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Shard enters a collection in the catalog, as if it had been sharded by this key,
// with a chunk on each shard that is named; the keys between them are those given.
func (c *Cluster) Shard(namespace string, key bson.D, between []bson.D, on ...string) {
	c.Change(func() {
		c.enter(namespace, key)
		edges := slices.Concat([]bson.D{ends(key, bson.MinKey{})}, between, []bson.D{ends(key, bson.MaxKey{})})
		for i := range len(edges) - 1 {
			c.chunk(namespace, edges[i], edges[i+1], on[i%len(on)])
		}
	})
}

// Track enters a collection that lies on one shard and is known to the cluster,
// as MongoDB 8.0 does it.
func (c *Cluster) Track(namespace string) {
	c.Change(func() {
		c.enter(namespace, bson.D{{Key: "_id", Value: 1}})
		last := len(c.collections) - 1
		c.collections[last] = append(c.collections[last], bson.E{Key: "unsplittable", Value: true})
	})
}

// Jumbo marks the first chunk of a collection.
func (c *Cluster) Jumbo(namespace string) {
	c.Change(func() {
		for i, d := range c.chunks {
			if fmt.Sprint(get(d, "uuid")) == fmt.Sprint(bson.Binary{Subtype: 4, Data: []byte(uuidOf(namespace))}) {
				c.chunks[i] = append(d, bson.E{Key: "jumbo", Value: true})
				return
			}
		}
	})
}

// Writes are the commands so far that change something, without reads.
func (c *Cluster) Writes() []Command {
	return slices.DeleteFunc(c.Commands(), func(one Command) bool {
		return slices.Contains([]string{"find", "aggregate", "listCollections", "listShards", "buildInfo", "balancerStatus", "listIndexes", "hello", "replSetGetConfig"}, one.Name)
	})
}

func done(more ...bson.E) bson.D { return append(bson.D{{Key: "ok", Value: 1}}, more...) }

func get(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

func batchOf(c Command, docs []bson.D) bson.D {
	if docs == nil {
		docs = []bson.D{}
	}
	return done(bson.E{Key: "cursor", Value: bson.D{
		{Key: "firstBatch", Value: docs}, {Key: "id", Value: int64(0)}, {Key: "ns", Value: c.Database + "." + c.collection()},
	}})
}

func (c *Cluster) answer(command Command) bson.D {
	if c.Refuse != nil {
		if answer := c.Refuse(command); answer != nil {
			return answer
		}
	}
	switch command.Name {
	case "buildInfo":
		var numbers bson.A
		for part := range strings.SplitSeq(c.Version, ".") {
			n, _ := strconv.Atoi(part)
			numbers = append(numbers, n)
		}
		return done(bson.E{Key: "version", Value: c.Version}, bson.E{Key: "versionArray", Value: append(numbers, 0)})
	case "listShards":
		return c.listShards()
	case "balancerStatus":
		return done(bson.E{Key: "mode", Value: c.Mode}, bson.E{Key: "inBalancerRound", Value: false})
	case "listCollections":
		return c.listCollections(command)
	case "find", "aggregate", "listIndexes":
		return c.read(command)
	case "replSetGetConfig":
		return nil // a router has none
	}
	if len(command.Operations) > 0 {
		return done(bson.E{Key: "n", Value: len(command.Operations)}, bson.E{Key: "nModified", Value: len(command.Operations)})
	}
	switch command.Name {
	case "ping", "update", "delete": // operations in the body, which are not recorded
		return done()
	}
	return c.administer(command)
}

func (c *Cluster) listShards() bson.D {
	var list []bson.D
	for _, name := range c.Shards {
		one := bson.D{{Key: "_id", Value: name}, {Key: "host", Value: name + "/" + name + ":27018"}, {Key: "state", Value: 1}}
		if len(c.zones[name]) > 0 {
			one = append(one, bson.E{Key: "tags", Value: c.zones[name]})
		}
		list = append(list, one)
	}
	return done(bson.E{Key: "shards", Value: list})
}

func (c *Cluster) listCollections(command Command) bson.D {
	filter, _ := get(command.Body, "filter").(bson.D)
	var list []bson.D
	for namespace := range c.Documents {
		name := strings.TrimPrefix(namespace, command.Database+".")
		options := c.Options[namespace]
		kind := "collection"
		if get(options, "timeseries") != nil {
			kind = "timeseries"
		}
		one := bson.D{{Key: "name", Value: name}, {Key: "type", Value: kind}, {Key: "options", Value: append(bson.D{}, options...)}}
		if name != namespace && matches(one, filter) {
			list = append(list, one)
		}
	}
	return batchOf(Command{Database: command.Database, Body: bson.D{{Key: "", Value: "$cmd.listCollections"}}}, list)
}

// matches knows equality and $in, which is what is asked here.
func matches(doc, filter bson.D) bool {
	for _, e := range filter {
		have := fmt.Sprint(get(doc, e.Key))
		if in, ok := e.Value.(bson.D); ok && len(in) == 1 && in[0].Key == "$in" {
			list, _ := in[0].Value.(bson.A)
			if !slices.ContainsFunc(list, func(v any) bool { return fmt.Sprint(v) == have }) {
				return false
			}
			continue
		}
		if have != fmt.Sprint(e.Value) {
			return false
		}
	}
	return true
}

func (c *Cluster) read(command Command) bson.D {
	namespace := command.Database + "." + command.collection()
	docs := c.Documents[namespace]
	filter, _ := get(command.Body, "filter").(bson.D)
	switch namespace {
	case "config.databases":
		docs = c.databases
	case "config.collections":
		docs = c.collections
	case "config.chunks":
		docs = c.chunks
	case "config.tags":
		docs = c.tags
	default: // documents of a stream: a filter is none of this server's business
		filter = nil
	}
	if command.Name == "aggregate" {
		return batchOf(command, c.aggregate(command, docs))
	}
	docs = slices.DeleteFunc(slices.Clone(docs), func(d bson.D) bool { return !matches(d, filter) })
	if sort, ok := get(command.Body, "sort").(bson.D); ok && len(sort) > 0 && sort[0].Value == int32(-1) {
		slices.Reverse(docs)
	}
	if limit, ok := get(command.Body, "limit").(int64); ok && limit > 0 && int(limit) < len(docs) {
		docs = docs[:limit]
	}
	return batchOf(command, docs)
}

// aggregate answers $collStats, one document a shard, and $sample, all ids.
func (c *Cluster) aggregate(command Command, docs []bson.D) []bson.D {
	stages, _ := get(command.Body, "pipeline").(bson.A)
	if len(stages) == 0 {
		return nil
	}
	stage, _ := stages[0].(bson.D)
	var out []bson.D
	switch stage[0].Key {
	case "$collStats":
		for _, shard := range c.Shards {
			if size, has := c.Sizes[shard]; has {
				out = append(out, bson.D{{Key: "shard", Value: shard}, {Key: "storageStats", Value: bson.D{
					{Key: "size", Value: size}, {Key: "count", Value: size / 1000}, {Key: "storageSize", Value: size / 4},
				}}})
			}
		}
	case "$sample":
		for _, d := range docs {
			id, _ := get(d, "_id").(bson.D)
			out = append(out, bson.D{{Key: "id", Value: get(id, "s")}})
		}
	}
	return out
}
