package mongod

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/brim-telemetry/brim/internal/machine"
)

// files are the paths below DataDir/mongod, absolute and without symbolic links, so
// that mongod's arguments identify it.
type files struct {
	dir     string // contains the others
	db      string // mongod's --dbpath
	log     string // mongod's log; the previous one has .1 appended
	out     string // what mongod printed before it opened its log, in the last start
	lock    string // held by the daemon that owns the directory; contains its pid
	lastRun string // lastRun, as JSON
	key     string // mongod's --keyFile; exists only with authentication
	uri     string // the URI for people and commands, with a password if mongod requires one
}

// lastRun is what the next run needs from this one.
type lastRun struct {
	Port int `json:"port"` // stays the same while it is free
	Pid  int `json:"pid"`  // of the mongod started last; 0 after a clean stop
}

// openFiles makes the directories if they are missing.
func openFiles(dataDir string) (files, error) {
	dir, err := filepath.Abs(filepath.Join(dataDir, "mongod"))
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "db"), 0o700) // only for this user, like the secrets next to it
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return files{}, fmt.Errorf("make mongod's directory: %w", err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return files{
		dir: dir, db: in("db"), log: in("mongod.log"), out: in("mongod.out"),
		lock: in("brim.lock"), lastRun: in("brim.json"), key: in("keyfile"), uri: in("uri"),
	}, nil
}

// lockDir locks the directory for this process, or returns an error that names the process that
// holds the lock.
func (f files) lockDir() (*flock.Flock, error) {
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
		return nil, fmt.Errorf("use %s: %s is running on it (%s is locked); stop it, or choose another data directory", f.dir, holder, f.lock)
	}
	if err := os.WriteFile(f.lock, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.lock, err), lock.Unlock())
	}
	return lock, nil
}

// loadLastRun returns the zero value if the file cannot be read: it is only a hint; mongod's own
// lock protects the data.
func (f files) loadLastRun() lastRun {
	var m lastRun
	text, err := os.ReadFile(f.lastRun)
	if err != nil || json.Unmarshal(text, &m) != nil || m.Port < 0 || m.Port > 65535 {
		return lastRun{}
	}
	return m
}

func (f files) saveLastRun(m lastRun) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.lastRun, err)
	}
	return machine.ReplaceFile(f.lastRun, text, nil)
}

// readPid returns 0 if the file contains no pid.
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

// mongodLock is where mongod writes its pid.
func (f files) mongodLock() string { return filepath.Join(f.db, "mongod.lock") }

// dbLocked reports whether a process has the data files open: mongod holds a lock
// on mongod.lock while it lives.
func (f files) dbLocked() (bool, error) {
	path := f.mongodLock()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock := flock.New(path)
	ok, err := lock.TryLock()
	if err != nil {
		return false, fmt.Errorf("check %s: %w", path, err)
	}
	if !ok {
		return true, nil
	}
	return false, lock.Unlock()
}

// Users of a mongod with authentication:
//
//	keyfile  ─▶ __system   this package, which creates the two users at each start
//	uri      ─▶ owner      people and commands who may read the file: all rights
//	(memory) ─▶ brim       the daemon: the rights it needs
//
// Only this user can read the files, and no start depends on their content: the key
// file makes this process the server itself, which resets the passwords. So an
// interrupted start, a lost file, and data written without authentication need no
// special treatment.
const (
	systemUser = "__system" // MongoDB's own; its password is the key file
	ownerUser  = "owner"
	daemonUser = "brim"
)

// credentials are the secrets of one mongod; all empty without authentication.
type credentials struct {
	key    string // content of the key file
	owner  string // password of the owner; in the file uri
	daemon string // password of the daemon; in memory only
}

var (
	keyForm      = regexp.MustCompile(`^[0-9a-f]{64}$`)      // mongod would accept more
	passwordForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`) // needs no escapes in a URI
)

// credentials reads the secrets, and creates those that are missing or that this
// package cannot have written.
func (f files) credentials() (credentials, error) {
	if err := os.Chmod(f.dir, 0o700); err != nil {
		return credentials{}, fmt.Errorf("restrict mongod's directory to this user: %w", err)
	}
	c := credentials{key: readSecret(f.key), daemon: newPassword()}
	if uri, err := url.Parse(readSecret(f.uri)); err == nil && uri.User.Username() == ownerUser {
		c.owner, _ = uri.User.Password()
	}
	if !passwordForm.MatchString(c.owner) {
		c.owner = newPassword() // launch writes it, with the address
	}
	if !keyForm.MatchString(c.key) {
		c.key = hex.EncodeToString(random())
		if err := machine.ReplaceFile(f.key, []byte(c.key), nil); err != nil {
			return credentials{}, err
		}
	}
	return c, nil
}

func random() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

func newPassword() string { return base64.RawURLEncoding.EncodeToString(random()) }

// readSecret reads a file that only this user can access; empty if there is none.
func readSecret(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// writeURI writes the owner's URI to its file, unless it is there already.
func (s *Server) writeURI() error {
	uri := s.uriOf(ownerUser, s.credentials.owner, s.config.Database)
	if readSecret(s.files.uri) == uri {
		return nil
	}
	return machine.ReplaceFile(s.files.uri, []byte(uri+"\n"), nil)
}

// uriOf is the URI for a user, who is included only if mongod requires
// authentication. The database is the one that a shell opens; empty: the shell's
// default.
func (s *Server) uriOf(user, password, database string) string {
	uri := url.URL{Scheme: "mongodb", Host: loopback + ":" + strconv.Itoa(s.port), Path: "/" + database}
	var options []string
	if !s.config.Standalone {
		options = append(options, "replicaSet="+replicaSet)
	}
	if s.config.Auth {
		uri.User = url.UserPassword(user, password)
		options = append(options, "authSource=admin")
	}
	uri.RawQuery = strings.Join(options, "&")
	return uri.String()
}
