package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	rateHosts = 100
	rateStep  = 10 * time.Second // of event time between a host's readings
)

// rateBody is a request in which only the timestamps change, so that making it costs next to
// nothing.
type rateBody struct {
	text   []byte
	stamps []int // offsets of the timestamps, host after host, step after step
}

const stampDigits = 19 // of nanoseconds since the epoch, until the year 2286

func newRateBody(lines int, seed uint64) *rateBody {
	random := rand.New(rand.NewPCG(seed, 7))
	body := &rateBody{}
	for i := range lines {
		body.text = append(body.text, hostTags(i%rateHosts)...)
		for f, name := range []string{"user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"} {
			separator := byte(',')
			if f == 0 {
				separator = ' '
			}
			body.text = append(body.text, separator)
			body.text = append(append(body.text, "usage_"...), name...)
			body.text = strconv.AppendInt(append(body.text, '='), random.Int64N(101), 10)
			body.text = append(body.text, 'i')
		}
		body.text = append(body.text, ' ')
		body.stamps = append(body.stamps, len(body.text))
		body.text = append(append(body.text, strings.Repeat("0", stampDigits)...), '\n')
	}
	return body
}

// hostTags returns a host's series, the same in every body.
func hostTags(host int) string {
	regions := [...]string{"eu-central-1", "us-west-2", "ap-southeast-1", "sa-east-1"}
	region := regions[host%len(regions)]
	return fmt.Sprintf("cpu,hostname=host_%d,region=%s,datacenter=%s%c,rack=%d,os=Ubuntu16.04LTS,arch=x%d,team=%s,service=%d,service_version=%d,service_environment=%s",
		host, region, region, 'a'+host%3, host*37%100, 64+22*(host%2), []string{"NYC", "SF", "LON", "CHI"}[host/3%4], host*7%20, host%2, []string{"production", "staging", "test"}[host/5%3])
}

// moveTo moves the body to this time step.
func (r *rateBody) moveTo(step int64) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for i := 0; i < len(r.stamps); i += rateHosts {
		var digits [stampDigits]byte
		stamp := strconv.AppendInt(digits[:0], begin+(step+int64(i/rateHosts))*rateStep.Nanoseconds(), 10)
		for _, at := range r.stamps[i : i+rateHosts] {
			copy(r.text[at:], stamp)
		}
	}
}

// countReadings counts the measurements themselves.
func countReadings(b *testing.B, coll *mongo.Collection) int64 {
	b.Helper()
	cursor, err := coll.Aggregate(b.Context(), bson.A{bson.D{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: nil},
		{Key: "n", Value: bson.D{{Key: "$sum", Value: bson.D{{Key: "$size", Value: "$measurements"}}}}},
	}}}})
	require.NoError(b, err)
	var counts []struct{ N int64 }
	require.NoError(b, cursor.All(b.Context(), &counts))
	require.Len(b, counts, 1)
	return counts[0].N
}
