package mongostest

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// administer carries out what changes the catalog; nil is for what is unknown.
func (c *Cluster) administer(command Command) bson.D {
	argument := command.collection()
	switch command.Name {
	case "enableSharding":
		c.addDatabase(argument)
	case "create":
		return c.create(command)
	case "createIndexes", "collMod", "dropIndexes", "drop":
	case "addShardToZone":
		if !slices.Contains(c.Shards, argument) {
			return Failure(70, "ShardNotFound", "shard '"+argument+"' does not exist")
		}
		zone, _ := get(command.Body, "zone").(string)
		c.zones[argument] = append(c.zones[argument], zone)
	case "updateZoneKeyRange":
		c.tags = append(c.tags, bson.D{
			{Key: "ns", Value: argument}, {Key: "min", Value: get(command.Body, "min")}, {Key: "max", Value: get(command.Body, "max")}, {Key: "tag", Value: get(command.Body, "zone")},
		})
	case "shardCollection":
		return c.shardCollection(command)
	case "split":
		return c.split(command)
	case "moveChunk":
		return c.moveChunk(command)
	default:
		return nil
	}
	return done()
}

func (c *Cluster) addDatabase(name string) {
	if !slices.ContainsFunc(c.databases, func(d bson.D) bool { return get(d, "_id") == name }) {
		c.databases = append(c.databases, bson.D{{Key: "_id", Value: name}, {Key: "primary", Value: c.Shards[0]}, {Key: "partitioned", Value: true}})
	}
}

func (c *Cluster) create(command Command) bson.D {
	namespace := command.Database + "." + command.collection()
	if _, there := c.Documents[namespace]; there {
		return Failure(48, "NamespaceExists", "Collection "+namespace+" already exists.")
	}
	c.addDatabase(command.Database)
	c.Documents[namespace] = nil
	c.Options[namespace] = slices.DeleteFunc(slices.Clone(command.Body[1:]), func(e bson.E) bool { return e.Key == "writeConcern" })
	return done()
}

// uuidOf is any that differs from collection to collection.
func uuidOf(namespace string) string { return "uuid of " + namespace }

func (c *Cluster) enter(namespace string, key bson.D) {
	c.collections = append(c.collections, bson.D{
		{Key: "_id", Value: namespace}, {Key: "uuid", Value: bson.Binary{Subtype: 4, Data: []byte(uuidOf(namespace))}}, {Key: "key", Value: key}, {Key: "unique", Value: false},
	})
}

func (c *Cluster) chunk(namespace string, from, to bson.D, shard string) {
	c.chunks = append(c.chunks, bson.D{
		{Key: "uuid", Value: bson.Binary{Subtype: 4, Data: []byte(uuidOf(namespace))}}, {Key: "min", Value: from}, {Key: "max", Value: to}, {Key: "shard", Value: shard},
	})
}

// ends is a key of which every field is an end.
func ends(key bson.D, end any) bson.D {
	out := make(bson.D, len(key))
	for i, e := range key {
		out[i] = bson.E{Key: e.Key, Value: end}
	}
	return out
}

// shardCollection enters the collection, a time series by its buckets, with the
// chunks that it begins with: of a hash two on each shard, of ranges one for each
// range of a zone and what lies between, and all on the first shard else.
func (c *Cluster) shardCollection(command Command) bson.D {
	namespace := command.collection()
	key, _ := get(command.Body, "key").(bson.D)
	if _, there := c.Documents[namespace]; !there {
		return Failure(26, "NamespaceNotFound", "this server shards what is there")
	}
	if get(c.Options[namespace], "timeseries") != nil {
		database, name, _ := strings.Cut(namespace, ".")
		namespace = database + ".system.buckets." + name
		translated := slices.Clone(key)
		for i, e := range translated {
			translated[i].Key = strings.Replace(e.Key, "sensor.", "meta.", 1)
		}
		key = translated
	}
	if slices.ContainsFunc(c.collections, func(d bson.D) bool { return get(d, "_id") == namespace }) {
		return Failure(23, "AlreadyInitialized", "sharding already enabled for collection "+namespace)
	}
	c.enter(namespace, key)
	edges := []bson.D{ends(key, bson.MinKey{})}
	switch key[0].Value {
	case "hashed":
		n := 2 * len(c.Shards)
		if asked, ok := get(command.Body, "numInitialChunks").(int32); ok {
			n = int(asked)
		}
		for i := 1; i < n; i++ {
			edges = append(edges, bson.D{{Key: key[0].Key, Value: int64(i)}})
		}
	default:
		for _, tag := range c.tags {
			if get(tag, "ns") != namespace {
				continue
			}
			for _, end := range []string{"min", "max"} {
				edge, _ := get(tag, end).(bson.D)
				if _, last := edge[0].Value.(bson.MaxKey); !last {
					edges = append(edges, edge)
				}
			}
		}
	}
	edges = append(edges, ends(key, bson.MaxKey{}))
	for i := range len(edges) - 1 {
		c.chunk(namespace, edges[i], edges[i+1], c.Shards[i%len(c.Shards)])
	}
	return done(bson.E{Key: "collectionsharded", Value: namespace})
}

// order of keys by their first field: the ends of all keys, texts and numbers.
func order(a, b any) int {
	text := func(v any) string {
		key, _ := v.(bson.D)
		switch v := key[0].Value.(type) {
		case bson.MinKey:
			return "0"
		case bson.MaxKey:
			return "2"
		case string:
			return "1" + v
		default:
			return fmt.Sprintf("1%020d", v)
		}
	}
	return strings.Compare(text(a), text(b))
}

// known returns the uuid of a sharded collection.
func (c *Cluster) known(namespace string) (any, bool) {
	for _, d := range c.collections {
		if get(d, "_id") == namespace {
			return get(d, "uuid"), true
		}
	}
	return nil, false
}

func (c *Cluster) split(command Command) bson.D {
	uuid, sharded := c.known(command.collection())
	if !sharded {
		return Failure(118, "NamespaceNotSharded", "namespace "+command.collection()+" is not sharded")
	}
	middle := get(command.Body, "middle")
	for i, d := range c.chunks {
		from, to := get(d, "min"), get(d, "max")
		if fmt.Sprint(get(d, "uuid")) != fmt.Sprint(uuid) || order(from, middle) > 0 || order(middle, to) >= 0 {
			continue
		}
		if order(from, middle) == 0 {
			return Failure(20, "IllegalOperation", "new split key is a boundary key of existing chunk")
		}
		left, right := slices.Clone(d), slices.Clone(d)
		left[2].Value, right[1].Value = middle, middle
		c.chunks = slices.Replace(c.chunks, i, i+1, left, right)
		return done()
	}
	return Failure(1, "InternalError", "no chunk has the key")
}

func (c *Cluster) moveChunk(command Command) bson.D {
	uuid, sharded := c.known(command.collection())
	bounds, _ := get(command.Body, "bounds").(bson.A)
	to, _ := get(command.Body, "to").(string)
	switch {
	case !sharded:
		return Failure(118, "NamespaceNotSharded", "namespace "+command.collection()+" is not sharded")
	case !slices.Contains(c.Shards, to):
		return Failure(70, "ShardNotFound", "Could not move chunk in '"+command.collection()+"' to shard '"+to+"' because that shard does not exist")
	}
	for _, d := range c.chunks {
		if fmt.Sprint(get(d, "uuid")) == fmt.Sprint(uuid) && order(get(d, "min"), bounds[0]) == 0 && order(get(d, "max"), bounds[1]) == 0 {
			d[3].Value = to
			return done()
		}
	}
	return Failure(1, "InternalError", "no chunk found with the shard key bounds")
}
