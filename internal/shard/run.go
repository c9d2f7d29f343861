package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// Run carries out the steps in their order, and tells each before it begins. The
// steps before one that failed are done; a plan that is made anew goes on behind
// them.
func (p *Plan) Run(ctx context.Context, tell func(done, all int, s Step)) error {
	for i, s := range p.Steps {
		tell(i, len(p.Steps), s)
		err := p.cluster.db.Client().Database(s.Database).RunCommand(ctx, s.Command).Err()
		if err != nil && !already(s, err) {
			return fmt.Errorf("spread stream %s: step %d of %d, %s: %w; what was done before it stays, and the same command goes on from there",
				p.Stream, i+1, len(p.Steps), s.Command[0].Key, err)
		}
	}
	return nil
}

// already reports whether a step failed because another was quicker with the
// same: a daemon makes the collection, too.
func already(s Step, err error) bool {
	const namespaceExists = 48
	return s.Command[0].Key == "create" && store.HasCode(err, namespaceExists)
}

// MarshalJSON gives the step as MongoDB's extended JSON.
func (s Step) MarshalJSON() ([]byte, error) {
	command, err := bson.MarshalExtJSON(s.Command, false, false)
	if err != nil {
		return nil, fmt.Errorf("write a step as JSON: %w", err)
	}
	return json.Marshal(struct {
		Database string          `json:"database"`
		Command  json.RawMessage `json:"command"`
		Why      string          `json:"why"`
	}{s.Database, command, s.Why})
}

// String is the step as mongosh takes it.
func (s Step) String() string {
	return fmt.Sprintf("db.getSiblingDB(%s).runCommand(%s)", quote(s.Database), shell(s.Command))
}

// shell writes a value as mongosh takes it.
func shell(v any) string {
	var parts []string
	switch v := v.(type) {
	case bson.D:
		for _, e := range v {
			parts = append(parts, quote(e.Key)+": "+shell(e.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bson.A:
		for _, e := range v {
			parts = append(parts, shell(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case bson.MinKey:
		return "MinKey()"
	case bson.MaxKey:
		return "MaxKey()"
	case string:
		return quote(v)
	default:
		return fmt.Sprint(v)
	}
}

// quote writes a text as JSON, which JavaScript reads.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Sprintf("%q", s)
	}
	return string(b)
}
