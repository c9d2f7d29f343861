package bucket

import (
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Statistics gathers what a part says of its readings where these are at hand
// as documents, and the part is made as a whole. The zero value is that of no
// readings.
type Statistics struct {
	fields []fieldStats
	places map[string]int // of fields, by name
	count  int
	span   struct{ first, last int64 }
}

// Add takes in a reading {ts, fields…}.
func (s *Statistics) Add(document bson.Raw) error {
	elements, err := document.Elements()
	if err != nil {
		return fmt.Errorf("read a stored reading: %w", err)
	}
	at, timed := int64(0), false
	for _, e := range elements {
		v := e.Value()
		switch v.Type {
		case bson.TypeDateTime:
			if e.Key() == store.TimeKey {
				at, timed = v.DateTime(), true
			}
		case bson.TypeDouble:
			s.field(e.Key()).add(telemetry.Float, math.Float64bits(v.Double()))
		case bson.TypeInt64, bson.TypeInt32:
			s.field(e.Key()).add(telemetry.Int, uint64(v.AsInt64()))
		}
	}
	if !timed {
		return fmt.Errorf("a stored reading has no %s: %s", store.TimeKey, document)
	}
	if s.count++; s.count == 1 {
		s.span.first, s.span.last = at, at
	}
	s.span.first, s.span.last = min(s.span.first, at), max(s.span.last, at)
	return nil
}

func (s *Statistics) field(name string) *fieldStats {
	i, ok := s.places[name]
	if !ok {
		if s.places == nil {
			s.places = make(map[string]int)
		}
		i = len(s.fields)
		s.places[name] = i
		s.fields = append(s.fields, fieldStats{elements: &elements{name: name}})
	}
	return &s.fields[i]
}

// Append appends the elements first, last and stats as the updates of a Store
// would have made them; stats is left out where no field has numbers.
func (s *Statistics) Append(dst []byte) []byte {
	dst = bsoncore.AppendDateTimeElement(dst, "first", s.span.first)
	dst = bsoncore.AppendDateTimeElement(dst, "last", s.span.last)
	if len(s.fields) == 0 {
		return dst
	}
	return document(dst, "stats", func(dst []byte) []byte {
		for i := range s.fields {
			dst = s.fields[i].append(dst)
		}
		return dst
	})
}

func (f *fieldStats) append(dst []byte) []byte {
	number := func(dst []byte, key string, kind telemetry.Kind, word uint64) []byte {
		if kind == telemetry.Int {
			return bsoncore.AppendInt64Element(dst, key, int64(word))
		}
		return bsoncore.AppendDoubleElement(dst, key, math.Float64frombits(word))
	}
	return document(dst, f.name, func(dst []byte) []byte {
		dst = number(dst, "min", f.minK, f.min)
		dst = number(dst, "max", f.maxK, f.max)
		dst = bsoncore.AppendDoubleElement(dst, "sum", f.sum)
		return bsoncore.AppendInt64Element(dst, "n", f.n)
	})
}
