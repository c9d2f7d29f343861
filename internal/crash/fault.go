//go:build fault

package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/brim-telemetry/brim/internal/journal"
)

// Variable is the name of the environment variable, whose value is POINT or POINT:N. The
// process ends when it reaches the point for the Nth time (default 1). Points are at the
// boundaries of the process:
//
//	write.before    write.after    a write to a segment of the journal
//	sync.before     sync.after     an fsync of one
//	remove.before   remove.after   the deletion of one
//	COMMAND.before  COMMAND.after  a MongoDB command, such as findAndModify
//	COMMAND@COLLECTION.before|after  one to this collection
//
// before is when it is about to be done, after is when it has succeeded. A command's
// collection is the value of its first element.
const Variable = "BRIM_CRASH"

const segmentSuffix = ".journal" // of a journal's segments

// chosen is where the process ends.
var chosen = sync.OnceValue(func() *point { //nolint:gochecknoglobals // the process has one end
	p, err := parse(os.Getenv(Variable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2) //nolint:forbidigo // a fault test is wrong
	}
	p.crash = func(at string) {
		// Servers recover the panics of their handlers, but not those of other goroutines.
		go panic("the test ends the process at " + at) //nolint:forbidigo // its purpose
		select {}
	}
	return p
})

// A point counts arrivals.
type point struct {
	name  string
	crash func(at string)

	mu   sync.Mutex
	left int
}

func parse(text string) (*point, error) {
	name, count, counted := strings.Cut(text, ":")
	p := &point{name: name, left: 1}
	if counted {
		var err error
		if p.left, err = strconv.Atoi(count); err != nil || p.left < 1 {
			return nil, fmt.Errorf("%s=%s: %q is not a number of arrivals from 1", Variable, text, count)
		}
	}
	what, found := strings.CutSuffix(name, ".before") // a collection's name may have dots
	if !found {
		what, found = strings.CutSuffix(name, ".after")
	}
	if text != "" && (what == "" || !found) {
		return nil, fmt.Errorf("%s=%s; allowed: POINT or POINT:N, where POINT is write, sync, remove, COMMAND or COMMAND@COLLECTION, and then .before or .after",
			Variable, text)
	}
	return p, nil
}

// at ends the process if this is the chosen arrival.
func (p *point) at(what, when string) {
	if p.name != what+"."+when {
		return
	}
	p.mu.Lock()
	p.left--
	left := p.left
	p.mu.Unlock()
	if left == 0 {
		p.crash(p.name)
	}
}

// around calls do, with a point before and after it.
func (p *point) around(what, file string, do func() error) error {
	if filepath.Ext(file) != segmentSuffix {
		return do()
	}
	p.at(what, "before")
	err := do()
	if err == nil {
		p.at(what, "after")
	}
	return err
}

// Files returns files of a journal with the points.
func Files(inner journal.Files) journal.Files { return files{inner, chosen()} }

type files struct {
	journal.Files

	point *point
}

type file struct {
	journal.File

	name  string
	point *point
}

func (f files) Create(name string) (journal.File, error) {
	return f.opened(name)(f.Files.Create(name))
}

func (f files) Open(name string, write bool) (journal.File, error) {
	return f.opened(name)(f.Files.Open(name, write))
}

func (f files) opened(name string) func(journal.File, error) (journal.File, error) {
	return func(inner journal.File, err error) (journal.File, error) {
		if err != nil {
			return nil, err
		}
		return file{inner, name, f.point}, nil
	}
}

func (f files) Remove(name string) error {
	return f.point.around("remove", name, func() error { return f.Files.Remove(name) })
}

func (f file) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.point.around("write", f.name, func() (err error) {
		n, err = f.File.WriteAt(b, at)
		return err
	})
	return n, err
}

func (f file) Sync() error { return f.point.around("sync", f.name, f.File.Sync) }

// Monitor returns a monitor of MongoDB commands with the points.
func Monitor() *event.CommandMonitor { return monitor(chosen()) }

func monitor(p *point) *event.CommandMonitor {
	var under sync.Map // collections of the commands that are under way, by request
	at := func(command, collection, when string) {
		p.at(command, when)
		p.at(command+"@"+collection, when)
	}
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			collection := collectionOf(e.Command, e.DatabaseName)
			under.Store(e.RequestID, collection)
			at(e.CommandName, collection, "before")
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if collection, ok := under.LoadAndDelete(e.RequestID); ok {
				at(e.CommandName, collection.(string), "after")
			}
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) { under.Delete(e.RequestID) },
	}
}

func collectionOf(command bson.Raw, database string) string {
	elements, err := command.Elements()
	if err != nil || len(elements) == 0 {
		return ""
	}
	name, _ := elements[0].Value().StringValueOK()
	return strings.TrimPrefix(name, database+".")
}
