package simulate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) {
	compressBefore()
	mongodtest.Main(m)
}

// compressBefore compresses and decompresses a block: the memory for that is made at the
// first use and has channels, which must not belong to the bubble of one run.
func compressBefore() {
	var b block.Builder
	for i := range 500 {
		b.AddReading(telemetry.Reading{Time: time.UnixMilli(int64(i)), Fields: []telemetry.Field{{Name: "text", Value: telemetry.TextValue(fmt.Sprint(i * 2654435761))}}})
	}
	data, err := b.Append(nil, block.Options{Compress: true})
	if err != nil {
		panic(err)
	}
	one, err := block.Open(data)
	if err != nil {
		panic(err)
	}
	for _, err := range one.Readings("s", nil, nil) {
		if err != nil {
			panic(err)
		}
	}
}

// reference is a real mongod, spoken to without a driver.
type reference struct {
	net.Conn

	requests uint32
}

func dialReference(t *testing.T) *reference {
	t.Helper()
	uri, err := url.Parse(mongodtest.URI(t))
	require.NoError(t, err)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", uri.Host)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &reference{Conn: c}
}

// run sends a command, with its document sequences, and returns the reply.
func (r *reference) run(m *message) (bson.Raw, error) {
	r.requests++
	out := append(make([]byte, 16+5, 1024), m.body...)
	for name, docs := range m.sequences {
		body := append([]byte(name), 0)
		for _, d := range docs {
			body = append(body, d...)
		}
		out = append(binary.LittleEndian.AppendUint32(append(out, 1), uint32(4+len(body))), body...)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	binary.LittleEndian.PutUint32(out[4:], r.requests)
	binary.LittleEndian.PutUint32(out[12:], opMsg)
	if _, err := r.Write(out); err != nil {
		return nil, err
	}
	answer, err := readMessage(r)
	return answer.body, err
}

// both runs commands on the model and on the reference.
type both struct {
	model     *MongoDB
	reference *reference
	database  string
	cursors   [2]int64 // of the last query
	runs      uint64   // histories have logical sessions of their own
}

// run returns the two replies, normalized. Replies differ in time stamps and texts of
// errors; and cursors and collections have other numbers.
func (b *both) run(command bson.D) (replies [2]bson.D, err error) {
	for i := range replies {
		c := append(slices.Clone(command), bson.E{Key: "$db", Value: b.database})
		if c[0].Key == "getMore" {
			c[0].Value = b.cursors[i]
		}
		m := &message{body: marshal(c)}
		if id := m.body.Lookup("lsid", "id"); id.Type != 0 {
			_, data := id.Binary()
			binary.BigEndian.PutUint64(data, b.runs) // of the message itself
		}
		var reply bson.Raw
		if i == 0 {
			x := &execution{db: b.model, host: b.model.primary, message: m, now: time.Now()}
			reply = marshal(x.run())
			b.model.replicate(len(b.model.tail))
		} else if reply, err = b.reference.run(m); err != nil {
			return replies, err
		}
		if id, ok := reply.Lookup("cursor", "id").Int64OK(); ok {
			b.cursors[i] = id
		}
		replies[i] = normalized(reply, command)
	}
	return replies, nil
}

// normalized leaves out what may differ.
func normalized(reply bson.Raw, command bson.D) bson.D {
	out := bson.D{}
	for _, e := range elements(reply) {
		v := e.Value()
		switch e.Key() {
		case "$clusterTime", "operationTime", "electionId", "opTime", "errmsg", "errInfo", "codeName", "commitQuorum", "note":
			continue
		case "cursor":
			out = append(out, normalizedCursor(v.Document(), command)...)
			continue
		case "writeErrors":
			for _, one := range elements(v.Data) {
				kept := only(one.Value().Document(), [][]string{{"index"}, {"code"}, {"keyValue"}})
				out = append(out, bson.E{Key: "writeError", Value: bson.Raw(kept)})
			}
			continue
		}
		out = append(out, bson.E{Key: e.Key(), Value: raw(v)})
	}
	slices.SortStableFunc(out, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// normalizedCursor is a batch of documents: without an order of the query the order of
// the index that MongoDB chose.
func normalizedCursor(c document, command bson.D) bson.D {
	docs := append(elements(at(c, "firstBatch").Data), elements(at(c, "nextBatch").Data)...)
	values := make([]value, len(docs))
	for i, d := range docs {
		values[i] = d.Value()
		if command[0].Key == "listCollections" {
			values[i].Data = without(values[i].Data, [][]string{{"idIndex"}, {"info", "uuid"}})
		}
	}
	filter, _ := field(command, "filter")
	if f, ok := filter.(bson.D); ok && len(f) > 0 && f[0].Key == "$or" {
		slices.SortFunc(values, func(a, b value) int { return bytes.Compare(a.Data, b.Data) })
	}
	out := bson.A{}
	for _, v := range values {
		out = append(out, raw(v))
	}
	return bson.D{{Key: "more", Value: at(c, "id").Int64() != 0}, {Key: "documents", Value: out}}
}

func newBoth(t *testing.T) *both {
	t.Helper()
	return &both{model: NewMongoDB("a.example:27017"), reference: dialReference(t), database: mongodtest.Database(t).Name()}
}

// difference is where the model and the reference answer differently.
type difference struct {
	at      int
	replies [2]bson.D
}

// compare runs a history, and returns the first difference. What the model does not know
// ends the history.
func (b *both) compare(h history) (d *difference, unknown string, err error) {
	b.model = NewMongoDB("a.example:27017")
	b.cursors = [2]int64{}
	b.runs++
	for i, c := range h {
		replies, unknown, err := b.try(c)
		if err != nil || unknown != "" {
			return nil, unknown, err
		}
		if i > 1 && !bytes.Equal(marshal(replies[0]), marshal(replies[1])) {
			return &difference{i, replies}, "", nil
		}
	}
	return nil, "", nil
}

func (b *both) try(c bson.D) (replies [2]bson.D, unknown string, err error) {
	defer func() {
		if r := recover(); r != nil {
			text, ok := r.(string)
			if !ok {
				panic(r)
			}
			unknown = text
		}
	}()
	replies, err = b.run(c)
	return replies, "", err
}

// shrink leaves out commands of a history that has a difference, as long as it has one.
func (b *both) shrink(h history, d *difference) (history, *difference) {
	h = h[:d.at+1]
	for i := len(h) - 2; i > 1; i-- {
		less := slices.Delete(slices.Clone(h), i, i+1)
		if found, _, err := b.compare(less); err == nil && found != nil {
			h, d = less[:found.at+1], found
			i = min(i, len(h)-1)
		}
	}
	return h, d
}

func (d *difference) String() string {
	text := func(reply bson.D) string {
		out, err := bson.MarshalExtJSON(reply, true, false)
		if err != nil {
			return reply.String()
		}
		return string(out)
	}
	return fmt.Sprintf("the model answers command %d with\n      %s\nand MongoDB with\n      %s", d.at, text(d.replies[0]), text(d.replies[1]))
}

func TestModelAnswersAsMongoDBDoes(t *testing.T) {
	t.Parallel()
	b := newBoth(t)
	const histories = 500
	unknowns, commands, differences := map[string]int{}, 0, 0
	began := time.Now()
	for seed := range uint64(histories) {
		h := newGenerator(seed).history()
		commands += len(h)
		d, unknown, err := b.compare(h)
		require.NoError(t, err)
		if unknown != "" {
			unknowns[unknown]++
		}
		if d == nil {
			continue
		}
		h, d = b.shrink(h, d)
		t.Errorf("history of seed %d:\n%s%s", seed, h, d)
		if differences++; differences == 8 {
			break
		}
	}
	t.Logf("%d histories, %d commands, %v", histories, commands, time.Since(began))
	for text, n := range unknowns {
		t.Logf("%d times: %s", n, text)
	}
}
