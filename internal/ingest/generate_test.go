package ingest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// A cpuReading is shaped like a line of the Time Series Benchmark Suite's
// cpu-only data: ten tags and ten integer fields.
type cpuReading struct {
	tags   [10][2]string
	millis int64
	values [10]int64
}

var cpuTags = [10]string{"hostname", "region", "datacenter", "rack", "os", "arch", "team", "service", "service_version", "service_environment"}

var cpuFields = [10]string{
	"usage_user", "usage_system", "usage_idle", "usage_nice", "usage_iowait",
	"usage_irq", "usage_softirq", "usage_steal", "usage_guest", "usage_guest_nice",
}

// makeCPU returns n readings of this many hosts, host by host at each instant.
func makeCPU(n, hosts int) []cpuReading {
	random := rand.New(rand.NewPCG(7, 7))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var of [][10][2]string
	for h := range hosts {
		values := [10]string{
			fmt.Sprintf("host_%d", h), pick("ap-southeast-1", "eu-central-1"), pick("eu-central-1a", "us-west-2b"), strconv.Itoa(random.IntN(100)),
			pick("Ubuntu16.04LTS", "Ubuntu15.10"), pick("x64", "x86"), pick("NYC", "SF", "LON"), strconv.Itoa(random.IntN(20)), pick("0", "1"), pick("production", "staging", "test"),
		}
		var tags [10][2]string
		for i, v := range values {
			tags[i] = [2]string{cpuTags[i], v}
		}
		of = append(of, tags)
	}
	readings := make([]cpuReading, n)
	for i := range readings {
		readings[i] = cpuReading{tags: of[i%hosts], millis: start + int64(i/hosts)*10_000}
		for f := range readings[i].values {
			readings[i].values[f] = random.Int64N(101)
		}
	}
	return readings
}

// lineProtocol writes the readings as the suite does.
func lineProtocol(readings []cpuReading) []byte {
	var b bytes.Buffer
	for _, r := range readings {
		b.WriteString("cpu")
		for _, t := range r.tags {
			fmt.Fprintf(&b, ",%s=%s", t[0], t[1])
		}
		for i, v := range r.values {
			separator := ","
			if i == 0 {
				separator = " "
			}
			fmt.Fprintf(&b, "%s%s=%di", separator, cpuFields[i], v)
		}
		fmt.Fprintf(&b, " %d000000\n", r.millis)
	}
	return b.Bytes()
}

// ndjson writes the readings one a line.
func ndjson(readings []cpuReading) []byte {
	var b bytes.Buffer
	for _, r := range readings {
		fmt.Fprintf(&b, `{"sensorId":"cpu,hostname=%s","ts":"%s","fields":{`, r.tags[0][1], time.UnixMilli(r.millis).UTC().Format("2006-01-02T15:04:05.000Z"))
		for i, v := range r.values {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%d", cpuFields[i], v)
		}
		b.WriteString(`},"tags":{`)
		for i, t := range r.tags {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%q", t[0], t[1])
		}
		b.WriteString("}}\n")
	}
	return b.Bytes()
}

// jsonArray writes the readings as one array.
func jsonArray(readings []cpuReading) []byte {
	lines := bytes.TrimSuffix(ndjson(readings), []byte("\n"))
	return append(append([]byte("["), bytes.ReplaceAll(lines, []byte("\n"), []byte(","))...), ']')
}

// plainRequest holds the readings in the plain form.
func plainRequest(readings []cpuReading) *telemetrypb.WriteRequest {
	request := &telemetrypb.WriteRequest{}
	for _, r := range readings {
		reading := &telemetrypb.Reading{SensorId: "cpu,hostname=" + r.tags[0][1], TsMs: proto.Int64(r.millis), Tags: tagsOf(r)}
		for i, v := range r.values {
			reading.Fields = append(reading.Fields, &telemetrypb.Field{Name: cpuFields[i], Value: &telemetrypb.Field_IntValue{IntValue: v}})
		}
		request.Readings = append(request.Readings, reading)
	}
	return request
}

// compactRequest holds the readings in the compact form, a series a host.
func compactRequest(readings []cpuReading) *telemetrypb.WriteRequest {
	request := &telemetrypb.WriteRequest{}
	of := make(map[string]*telemetrypb.Series)
	for _, r := range readings {
		s := of[r.tags[0][1]]
		if s == nil {
			s = &telemetrypb.Series{SensorId: "cpu,hostname=" + r.tags[0][1], Tags: tagsOf(r)}
			for _, name := range cpuFields {
				s.Columns = append(s.Columns, &telemetrypb.Column{Name: name})
			}
			of[r.tags[0][1]] = s
			request.Series = append(request.Series, s)
		}
		s.TsMs = append(s.TsMs, r.millis)
		for i, v := range r.values {
			s.Columns[i].Ints = append(s.Columns[i].Ints, v)
		}
	}
	return request
}

func tagsOf(r cpuReading) []*telemetrypb.Tag {
	var tags []*telemetrypb.Tag
	for _, t := range r.tags {
		tags = append(tags, &telemetrypb.Tag{Name: t[0], Value: t[1]})
	}
	return tags
}
