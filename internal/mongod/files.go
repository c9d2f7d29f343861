package mongod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// files are the paths below DataDir/mongod, absolute and without symbolic
// links, so that mongod's arguments show whose it is.
type files struct {
	dir    string // holds all of the others
	db     string // mongod's --dbpath
	log    string // mongod's log; the one before is beside it, with .1
	out    string // what mongod wrote before it had a log, for the last start
	lock   string // held by the daemon that owns the directory, with its pid inside
	memory string // memory, as JSON
	key    string // mongod's --keyFile; not there without authentication
	uri    string // the URI for people and commands, with a password where mongod asks
}

// memory is what the next run must know about this one.
type memory struct {
	// Port stays the same over restarts while it is free.
	Port int `json:"port"`
	// Pid of the mongod that was started last; 0 after a clean stop.
	Pid int `json:"pid"`
}

// openFiles makes the directories where they are missing.
func openFiles(dataDir string) (files, error) {
	dir, err := filepath.Abs(filepath.Join(dataDir, "mongod"))
	if err != nil {
		return files{}, fmt.Errorf("find mongod's directory: %w", err)
	}
	// The database is the user's alone, and so are the secrets beside it.
	if err := os.MkdirAll(filepath.Join(dir, "db"), 0o700); err != nil {
		return files{}, fmt.Errorf("make mongod's directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return files{}, fmt.Errorf("find mongod's directory: %w", err)
	}
	return files{
		dir:    dir,
		db:     filepath.Join(dir, "db"),
		log:    filepath.Join(dir, "mongod.log"),
		out:    filepath.Join(dir, "mongod.out"),
		lock:   filepath.Join(dir, "brim.lock"),
		memory: filepath.Join(dir, "brim.json"),
		key:    filepath.Join(dir, "keyfile"),
		uri:    filepath.Join(dir, "uri"),
	}, nil
}

// own takes the directory for this process, or says which one has it.
func (f files) own() (*flock.Flock, error) {
	lock := flock.New(f.lock, flock.SetFlag(os.O_CREATE|os.O_RDWR))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", f.lock, err)
	}
	if !ok {
		holder := "another process"
		if pid := readPid(f.lock); pid > 0 {
			holder = fmt.Sprintf("process %d", pid)
		}
		return nil, fmt.Errorf("use %s: %s is running on it (%s is locked); end that one, or choose another data directory", f.dir, holder, f.lock)
	}
	if err := os.WriteFile(f.lock, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.lock, err), lock.Unlock())
	}
	return lock, nil
}

// recall returns the zero memory when there is none, or none that can be
// read: it is written in one piece, so a broken one is somebody's doing, and
// mongod's own lock still guards the data.
func (f files) recall() memory {
	var m memory
	text, err := os.ReadFile(f.memory)
	if err != nil || json.Unmarshal(text, &m) != nil || m.Port < 0 || m.Port > 65535 {
		return memory{}
	}
	return m
}

func (f files) remember(m memory) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.memory, err)
	}
	fresh := f.memory + ".new"
	if err := os.WriteFile(fresh, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, f.memory); err != nil {
		return fmt.Errorf("replace %s: %w", f.memory, err)
	}
	return nil
}

// readPid returns 0 when the file holds none.
func readPid(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// dbLocked reports whether any process has the database's files open: mongod
// holds a flock on mongod.lock for as long as it lives.
func (f files) dbLocked() (bool, error) {
	path := f.mongodLock()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock := flock.New(path)
	ok, err := lock.TryLock()
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if !ok {
		return true, nil
	}
	return false, lock.Unlock()
}

// mongodLock is where mongod writes its pid.
func (f files) mongodLock() string { return filepath.Join(f.db, "mongod.lock") }
