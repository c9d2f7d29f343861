package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// askedFields finds the fields named by --fields that no printed item has: a
// misspelled name would be an empty column, or nothing at all.
type askedFields struct {
	asked []string
	whole bool            // as in kind.row
	seen  map[string]bool // names of columns
}

// look notes the fields of items.
func (a *askedFields) look(k kind, items []json.RawMessage) error {
	if len(a.asked) == 0 {
		return nil
	}
	for _, item := range items {
		_, fields, err := k.row(item, a.whole)
		if err != nil {
			return err
		}
		for name := range fields {
			a.seen[name] = true
		}
	}
	return nil
}

// warn names the fields that were asked for and not seen, and those that were.
func (a *askedFields) warn(w io.Writer, k kind) error {
	var missing []string
	for _, name := range a.asked {
		if len(chosen(a.seen, []string{name})) == 1 && !a.seen[name] {
			missing = append(missing, strconv.Quote(name))
		}
	}
	there := a.names(k)
	if len(missing) == 0 || len(there) == 0 {
		return nil
	}
	const most = 20
	rest := ""
	if n := len(there) - most; n > 0 {
		there, rest = there[:most], fmt.Sprintf(" and %d more", n)
	}
	_, err := fmt.Fprintf(w, "no %s shown has a field %s; they have %s%s\n", k.item, strings.Join(missing, " or "), strings.Join(there, ", "), rest)
	return err
}

// names returns the names of the fields that were seen. Tags, and the statistics
// of a field in a summary, come after a dot.
func (a *askedFields) names(k kind) []string {
	fields := make(map[string]bool)
	for name := range a.seen {
		if i := strings.LastIndexByte(name, '.'); i > 0 && k.item == "step" {
			name = name[:i]
		}
		fields[printable(name)] = true
	}
	return slices.Sorted(maps.Keys(fields))
}
