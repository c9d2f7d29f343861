package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fieldAnswer is what becomes of a reading with fields that its stream does
// not allow.
type fieldAnswer string

const (
	refuseReading fieldAnswer = "refuse" // the reading is refused
	dropField     fieldAnswer = "drop"   // it is taken without them
)

// writeConcern takes majority, or a number of members.
func writeConcern(place *store.WriteConcern) func(string) error {
	return func(s string) error {
		if s == store.MajorityName {
			place.Members = 0
			return nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > store.MostMembers {
			return fmt.Errorf("%q is neither %s nor a whole number from 1 to %d", s, store.MajorityName, store.MostMembers)
		}
		place.Members = n
		return nil
	}
}

// writeJournal takes on and off.
func writeJournal(place *store.WriteConcern) func(string) error {
	return func(s string) error {
		var position SwitchPosition
		err := config.Choice(&position, On, Off)(s)
		place.Unjournaled = position == Off
		return err
	}
}

// fieldNames takes names with commas between them.
func fieldNames(place *[]string) func(string) error {
	return func(s string) error {
		*place = nil
		if strings.TrimSpace(s) == "" {
			return nil
		}
		var names []string
		for name := range strings.SplitSeq(s, ",") {
			name = strings.TrimSpace(name)
			if r := telemetry.CheckFieldName([]byte(name)); r != nil {
				return fmt.Errorf("%q cannot name a field: %s", name, r.Message)
			}
			if slices.Contains(names, name) {
				return fmt.Errorf("%q is named twice", name)
			}
			names = append(names, name)
		}
		if len(names) > telemetry.MaxFields {
			return fmt.Errorf("%d fields are named; a reading has at most %d", len(names), telemetry.MaxFields)
		}
		*place = names
		return nil
	}
}

// isList reports whether a setting may be a list in the file.
func isList(name string) bool {
	return slices.ContainsFunc((&Settings{}).All(), func(s Setting) bool { return s.list && s.Name == name })
}

// join writes a list as the text that flags have.
func (f *file) join(key, name string, list []any) error {
	if !isList(name) {
		return errors.New("must have a single value")
	}
	texts := make([]string, len(list))
	for i, v := range list {
		switch v.(type) {
		case string, int, int64, uint64, float64, bool:
			texts[i] = fmt.Sprint(v)
		default:
			return errors.New("must be a list of single values, like [a, b]")
		}
		if strings.Contains(texts[i], ",") {
			return fmt.Errorf("cannot hold %q: a name in it has no comma", texts[i])
		}
		if texts[i] == "" {
			return errors.New("cannot hold an empty name")
		}
	}
	if err := f.values.Set(key, strings.Join(texts, ",")); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}
