package mongod

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Whoever comes to a mongod that asks:
//
//	keyfile  ─▶ __system   this package, which makes the two users at each start
//	uri      ─▶ owner      people and commands who may read the file: everything
//	(memory) ─▶ brim       the daemon: the least that it works with
//
// The files are the user's alone. No start depends on what is in them: with the
// key file, whatever it holds, one is the server itself, and sets the users'
// passwords to what they are now. So a start that was cut off anywhere, a file
// that was lost, and data that were written without authentication need no
// treatment of their own.
const (
	systemUser = "__system" // MongoDB's own, whose password is the key file
	ownerUser  = "owner"
	daemonUser = "brim"

	// secretBytes are 256 bits, which nobody guesses.
	secretBytes = 32
	// authSource is the database that the users are of, as an option of a URI.
	authSource = "authSource=admin"
)

// credentials are the secrets of one mongod. The zero value is that of one
// that asks nobody.
type credentials struct {
	key    string // of the key file
	owner  string // password of the owner; in the file uri
	daemon string // password of the daemon; of one Server, and on no disk
}

func (c credentials) asked() bool { return c.key != "" }

// keyForm is what is written into a key file; mongod takes more.
var keyForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// passwordForm is what is drawn as a password; it needs no escapes in a URI.
var passwordForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// credentials reads the secrets, and draws and writes those that are missing
// or that nobody can have written here.
func (f files) credentials() (credentials, error) {
	if err := os.Chmod(f.dir, 0o700); err != nil {
		return credentials{}, fmt.Errorf("keep mongod's directory to this user: %w", err)
	}
	c := credentials{key: f.storedKey(), owner: f.storedPassword(), daemon: drawPassword()}
	if c.owner == "" {
		c.owner = drawPassword() // launch writes it, with the address
	}
	if c.key == "" {
		c.key = hex.EncodeToString(randomBytes())
		if err := writeSecret(f.key, c.key); err != nil {
			return credentials{}, err
		}
	}
	return c, nil
}

func randomBytes() []byte {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return b
}

func drawPassword() string { return base64.RawURLEncoding.EncodeToString(randomBytes()) }

// storedKey returns the key of the last run, none if it cannot be used.
func (f files) storedKey() string {
	text, err := readSecret(f.key)
	if key := strings.TrimSpace(text); err == nil && keyForm.MatchString(key) {
		return key
	}
	return ""
}

// storedPassword returns the owner's of the last run, none if there is none.
func (f files) storedPassword() string {
	text, err := readSecret(f.uri)
	if err != nil {
		return ""
	}
	uri, err := url.Parse(strings.TrimSpace(text))
	if err != nil || uri.User.Username() != ownerUser {
		return ""
	}
	password, _ := uri.User.Password()
	if !passwordForm.MatchString(password) {
		return ""
	}
	return password
}

var errOpen = errors.New("it was open to others")

// readSecret reads a file that is the user's alone. Of one that is not, others
// may know what is in it.
func readSecret(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", path, err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("read %s: %w", path, errOpen)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return string(text), nil
}

// writeSecret replaces a file in one piece; it stays if the machine fails.
func writeSecret(path, text string) (err error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("write %s: %w", path, err)
	}
	file, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = file.WriteString(text + "\n")
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeURI puts the owner's URI where people and commands find it, unless it
// is there.
func (s *Server) writeURI() error {
	uri := s.uriOf(ownerUser, s.credentials.owner, s.config.Database)
	if text, err := readSecret(s.files.uri); err == nil && strings.TrimSpace(text) == uri {
		return nil
	}
	return writeSecret(s.files.uri, uri)
}

// uriOf is the URI for a user, who is in it only where mongod asks. The database
// is the one that a shell opens with it; empty: the shell's own choice.
func (s *Server) uriOf(user, password, database string) string {
	uri := url.URL{Scheme: "mongodb", Host: loopback + ":" + strconv.Itoa(s.port), Path: "/" + database}
	var options []string
	if !s.config.Standalone {
		options = append(options, "replicaSet="+replicaSet)
	}
	if s.credentials.asked() {
		uri.User = url.UserPassword(user, password)
		options = append(options, authSource)
	}
	uri.RawQuery = strings.Join(options, "&")
	return uri.String()
}
