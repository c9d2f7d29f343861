package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofrs/flock"
	yaml "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/machine"
)

// An Entry is an identity in the access file.
type Entry struct {
	Name         string
	Certificate  string // KIND:NAME, or a common name; empty: it has a token
	Scopes       []Scope
	SensorPrefix string    // empty: all sensors
	Created      time.Time // zero: unknown
	Expires      time.Time // zero: never
	Quota        Quota

	hash [sha256.Size]byte // of the token
}

// credential identifies the entry's token, by the bytes of its hash, or its certificate, by
// KIND:NAME. A hash is unlikely to look like that.
func (e *Entry) credential() string {
	if e.Certificate != "" {
		return certificateKey(e.Certificate)
	}
	return string(e.hash[:])
}

// Keys of the access file.
const (
	keyIdentities = "identities"

	keyName        = "name"
	keyHash        = "hash"
	keyCertificate = "certificate"
	keyScopes      = "scopes"
	keyPrefix      = "sensor_prefix"
	keyCreated     = "created"
	keyExpires     = "expires"
	keyQuota       = "quota"

	keyRequests   = "requests_per_second"
	keyReadings   = "readings_per_second"
	keyNewSensors = "new_sensors_per_second"
	keyActive     = "active_sensors"
)

const (
	maxName   = 64       // characters
	maxPrefix = 1 << 10  // bytes, as of a sensor's id
	maxFile   = 32 << 20 // bytes: some 100,000 identities
)

// Load reads an access file. For errors see parse.
func Load(path string) ([]Entry, error) {
	content, _, err := readFile(path)
	if err != nil {
		return nil, err
	}
	entries, _, err := parse(path, content)
	return entries, err
}

// readFile refuses a file that users other than its owner may write, since they could grant
// themselves any rights.
func readFile(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the access file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the access file: %w", err)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("read the access file: %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); hasModes && mode&0o022 != 0 {
		return nil, nil, fmt.Errorf("refuse the access file: users other than its owner may write %s, its mode is %04o; fix it with: chmod 600 %s", path, mode, path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the access file: %w", err)
	}
	if len(content) > maxFile {
		return nil, nil, fmt.Errorf("read the access file: %s has more than %d bytes", path, maxFile)
	}
	return content, info, nil
}

// hasModes is false on Windows, whose files have no permission bits.
const hasModes = runtime.GOOS != "windows"

// trusted reports whether a file with this owner may grant access.
func trusted(owner, self int) bool { return owner == 0 || owner == self }

// warnOpen warns if other users may read or replace the file. Both are common, so the file is
// not refused.
func warnOpen(log *slog.Logger, path string, info os.FileInfo) {
	if !hasModes {
		return
	}
	if mode := info.Mode().Perm(); mode&0o004 != 0 {
		log.Warn("every user of this machine may read the access file; it has no tokens, but names and rights", "file", path, "mode", fmt.Sprintf("%04o", mode))
	}
	dirs := []string{filepath.Dir(path)}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Dir(target) != dirs[0] {
		dirs = append(dirs, filepath.Dir(target))
	}
	for _, dir := range dirs {
		if d, err := os.Stat(dir); err == nil && d.Mode().Perm()&0o022 != 0 && d.Mode()&os.ModeSticky == 0 {
			log.Warn("other users may write to the directory of the access file, and so replace it; fix it with chmod go-w", "directory", dir, "mode", fmt.Sprintf("%04o", d.Mode().Perm()))
		}
	}
}

// An accessFile is a file that is being parsed.
type accessFile struct {
	config.YAML

	entries []Entry
	emptied bool // the list is an explicit []
}

// parse reads an access file; path is for errors only:
//
//	identities:
//	  - name: north                    # unique, 1 to 64 characters
//	    hash: sha256:0f34…             # of a token; or certificate: cn:NAME, dns:NAME, uri:URI or email:ADDRESS
//	    scopes: [ingest, read]         # of ingest, read and admin; admin includes the others
//	    sensor_prefix: north-          # only sensors whose ids begin with it
//	    created: 2026-11-21T10:00:00Z
//	    expires: 2027-11-21T10:00:00Z
//	    quota: {requests_per_second: 50, readings_per_second: 1000, new_sensors_per_second: 10, active_sensors: 5000}
//
// Errors name the line and what is allowed; several are joined. They do not contain what may
// be a token. emptied reports whether the list of identities is an explicit [].
func parse(path string, content []byte) (entries []Entry, emptied bool, err error) {
	if !utf8.Valid(content) { // YAML allows UTF-16, but an edit would add UTF-8 to it
		return nil, false, fmt.Errorf("%s:1: the access file is not UTF-8", path)
	}
	f := accessFile{YAML: config.YAML{Path: path, Plain: true, Quote: excerpt}}
	if top := f.Parse(content); top != nil {
		f.Each(top, "", config.Choices{Names: []string{keyIdentities}}, func(_, value *yaml.Node) { f.identities(value) })
	}
	if err := f.Err(); err != nil {
		return nil, false, err
	}
	return f.entries, f.emptied, nil
}

func (f *accessFile) identities(list *yaml.Node) {
	if list.Tag == "!!null" {
		return
	}
	if list.Kind != yaml.SequenceNode {
		f.Wrong(list, "%s: expected a list, with entries that begin with - name: …", keyIdentities)
		return
	}
	f.emptied = len(list.Content) == 0
	names, credentials := make(map[string]int), make(map[string]int)
	for _, n := range list.Content {
		before := f.Problems()
		e := f.identity(n)
		if f.Problems() > before {
			continue
		}
		credential := e.credential()
		if line, twice := names[e.Name]; twice {
			f.Wrong(n, "%s: the name %q is given twice, first in line %d", keyIdentities, e.Name, line)
		} else if line, twice := credentials[credential]; twice {
			f.Wrong(n, "%s: %s has the same token or certificate as the identity in line %d; each needs its own", keyIdentities, e.Name, line)
		}
		names[e.Name], credentials[credential] = n.Line, n.Line
		f.entries = append(f.entries, e)
	}
}

// A member is a string field of an identity in the file.
type member struct {
	key string
	get func(e *Entry) string // empty: it is left out
	set func(e *Entry, text string) error
}

// members lists the string fields in file order. The scopes and the quota follow.
func members() []member {
	return []member{
		{keyName, func(e *Entry) string { return e.Name }, func(e *Entry, s string) error { e.Name = s; return checkName(s) }},
		{keyHash, hashText, func(e *Entry, s string) (err error) { e.hash, err = parseHash(s); return err }},
		{keyCertificate, func(e *Entry) string { return e.Certificate }, func(e *Entry, s string) error { e.Certificate = s; return checkCertificate(s) }},
		{keyPrefix, func(e *Entry) string { return e.SensorPrefix }, func(e *Entry, s string) error { e.SensorPrefix = s; return checkPrefix(s) }},
		{keyCreated, func(e *Entry) string { return timeText(e.Created) }, func(e *Entry, s string) (err error) { e.Created, err = parseTime(s); return err }},
		{keyExpires, func(e *Entry) string { return timeText(e.Expires) }, func(e *Entry, s string) (err error) { e.Expires, err = parseTime(s); return err }},
	}
}

// identity parses one identity.
func (f *accessFile) identity(n *yaml.Node) (e Entry) {
	e.Quota = NoQuota()
	keys := []string{keyScopes, keyQuota}
	texts := make(map[string]member)
	for _, m := range members() {
		keys, texts[m.key] = append(keys, m.key), m
	}
	seen := make(map[string]bool)
	f.Each(n, keyIdentities+".", config.Choices{Names: keys}, func(key, value *yaml.Node) {
		seen[key.Value] = true
		var err error
		switch {
		case key.Value == keyScopes:
			e.Scopes, err = scopesOf(value)
		case key.Value == keyQuota:
			f.quota(&e.Quota, value)
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			err = errors.New("expected a single value")
		default:
			err = texts[key.Value].set(&e, value.Value)
		}
		if err != nil {
			f.Wrong(value, "%s: %s", key.Value, err)
		}
	})
	if n.Kind != yaml.MappingNode {
		return e
	}
	who := cmp.Or(e.Name, "an identity")
	if !seen[keyName] {
		f.Wrong(n, "%s: name is missing", who)
	}
	if !seen[keyScopes] {
		f.Wrong(n, "%s: scopes are missing, as in scopes: [ingest]; allowed: %s", who, joinScopes(scopes[:]))
	}
	if seen[keyHash] == seen[keyCertificate] {
		f.Wrong(n, "%s: either hash or certificate is required; brim token create makes a token and its hash", who)
	}
	return e
}

func scopesOf(n *yaml.Node) ([]Scope, error) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return nil, fmt.Errorf("expected a list, such as [ingest, read]; allowed: %s", joinScopes(scopes[:]))
	}
	names := make([]string, len(n.Content))
	for i, item := range n.Content {
		if item.Kind == yaml.ScalarNode {
			names[i] = item.Value
		}
	}
	return ParseScopes(names)
}

// ParseScopes parses the names of scopes: at least one, each once.
func ParseScopes(names []string) ([]Scope, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("at least one scope is needed; allowed: %s", joinScopes(scopes[:]))
	}
	out := make([]Scope, 0, len(scopes))
	for _, name := range names {
		switch s := Scope(name); {
		case !slices.Contains(scopes[:], s):
			return nil, fmt.Errorf("unknown scope %q; allowed: %s", excerpt(name), joinScopes(scopes[:]))
		case slices.Contains(out, s):
			return nil, fmt.Errorf("the scope %s is given twice", s)
		default:
			out = append(out, s)
		}
	}
	return out, nil
}

func checkName(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case n == 0 || n > maxName:
		return fmt.Errorf("it has %d characters; allowed: 1 to %d", n, maxName)
	case !printable(name) || strings.TrimSpace(name) != name:
		return errors.New("only printable characters are allowed, and no space at the ends")
	case strings.Contains(name, tokenPrefix):
		return errors.New("this looks like a token; the name of an identity is not secret")
	}
	return nil
}

func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New("it is empty; leave it out to allow all sensors")
	case len(prefix) > maxPrefix:
		return fmt.Errorf("it has %d bytes; allowed: %d", len(prefix), maxPrefix)
	case !printable(prefix):
		return errors.New("only printable characters are allowed, as in the id of a sensor")
	}
	return nil
}

func hashText(e *Entry) string {
	if e.Certificate != "" {
		return ""
	}
	return hashPrefix + hex.EncodeToString(e.hash[:])
}

func parseHash(text string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) {
		return sum, errors.New("expected sha256: and the 64 hexadecimal digits of a token's hash; a token itself does not belong in this file")
	}
	if _, err := hex.Decode(sum[:], []byte(digits)); err != nil {
		return sum, errors.New("what follows sha256: is not hexadecimal")
	}
	return sum, nil
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time like 2027-11-21T10:00:00Z", excerpt(text))
	}
	return at, nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// excerpt shortens a text for an error, and cuts off what may be a token.
func excerpt(s string) string {
	const most = 100
	if at := strings.Index(s, tokenPrefix); at >= 0 {
		return s[:min(at, most)] + tokenPrefix + "…"
	}
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func (f *accessFile) quota(q *Quota, n *yaml.Node) {
	var keys []string
	limits := q.limits()
	for _, l := range limits {
		keys = append(keys, l.key)
	}
	f.Each(n, keyQuota+".", config.Choices{Names: keys}, func(key, value *yaml.Node) {
		l := &limits[slices.Index(keys, key.Value)]
		v, err := strconv.ParseFloat(value.Value, 64)
		if value.Kind != yaml.ScalarNode || err != nil || !l.allows(v) {
			f.Wrong(value, "%s.%s: %q is not %s", keyQuota, key.Value, excerpt(value.Value), l.allowed())
			return
		}
		*l.value = v
	})
}

// heading of a new access file.
const heading = `# Who may access Brim. Edit this file, or use brim token create and revoke:
# a daemon applies a change within two seconds.
`

// Add writes an identity to an access file, and creates the file if necessary. hash is the
// hash of its token; empty if the entry has a certificate. A change is atomic; ctx bounds
// the wait for other changes. Comments and order are preserved; blank lines are not.
func Add(ctx context.Context, path string, e Entry, hash string) error {
	if err := e.check(); err != nil {
		return err
	}
	if e.Certificate == "" {
		var err error
		if e.hash, err = parseHash(hash); err != nil {
			return err
		}
	}
	return edit(ctx, path, func(list *yaml.Node) error {
		if indexOf(list, e.Name) >= 0 {
			return ErrIdentityExists
		}
		list.Content = append(list.Content, e.node())
		return nil
	})
}

// Errors of Add and Remove.
var (
	ErrIdentityExists = errors.New("an identity of this name already exists")
	ErrNoIdentity     = errors.New("there is no identity of this name")
)

// Remove removes an identity from an access file, as Add adds one.
func Remove(ctx context.Context, path, name string) error {
	return edit(ctx, path, func(list *yaml.Node) error {
		n := indexOf(list, name)
		if n < 0 {
			return ErrNoIdentity
		}
		list.Content = slices.Delete(list.Content, n, n+1)
		return nil
	})
}

// indexOf returns the index of an identity in the list; -1: not there.
func indexOf(list *yaml.Node, name string) int {
	return slices.IndexFunc(list.Content, func(item *yaml.Node) bool {
		value := valueOf(item, keyName)
		return value != nil && value.Value == name
	})
}

// check checks an entry before it is written.
func (e *Entry) check() error {
	var problems []error
	for _, m := range members() {
		if text := m.get(e); text != "" {
			if err := m.set(&Entry{}, text); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", m.key, err))
			}
		}
	}
	return errors.Join(problems...)
}

func edit(ctx context.Context, path string, change func(list *yaml.Node) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // or the link would be replaced
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Close() }()
	content, info, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		content, err = []byte(heading), nil
	}
	if err != nil {
		return err
	}
	if _, _, err := parse(path, content); err != nil {
		return fmt.Errorf("not changed, because the access file is invalid: %w", err)
	}
	changed, err := changedBy(content, change)
	if err != nil {
		return err
	}
	if _, _, err := parse(path, changed); err != nil {
		return fmt.Errorf("not changed, because the access file would become invalid: %w", err)
	}
	return machine.ReplaceFile(path, changed, func(f *os.File) error {
		if info == nil { // there was none
			return nil
		}
		return copyOwner(f, info)
	})
}

// changedBy returns the content of a valid file with its list of identities changed.
func changedBy(content []byte, change func(list *yaml.Node) error) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fmt.Errorf("read the access file: %w", err)
	}
	var out bytes.Buffer
	top := &yaml.Node{Kind: yaml.MappingNode}
	switch {
	case len(root.Content) == 0: // at most comments, which are in no node
		if out.Write(content); len(content) > 0 && content[len(content)-1] != '\n' {
			out.WriteByte('\n')
		}
		root = *top
		top = &root
	case root.Content[0].Tag == "!!null":
		root.Content[0] = top
	default:
		top = root.Content[0]
	}
	list := valueOf(top, keyIdentities)
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		top.Content = append(top.Content, text(keyIdentities), list)
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 { // nothing, or []
		*list = yaml.Node{Kind: yaml.SequenceNode, HeadComment: list.HeadComment, LineComment: list.LineComment, FootComment: list.FootComment}
	}
	if err := change(list); err != nil {
		return nil, err
	}
	if len(list.Content) == 0 { // written as [], which cannot follow a comment
		for _, n := range top.Content {
			n.HeadComment, n.LineComment = strings.TrimPrefix(n.HeadComment+"\n"+n.LineComment, "\n"), ""
		}
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(&root), encoder.Close()); err != nil {
		return nil, fmt.Errorf("write the access file: %w", err)
	}
	return out.Bytes(), nil
}

// valueOf returns the value of a mapping's key; nil: none.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// node returns the entry as YAML.
func (e *Entry) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, m := range members() {
		if value := m.get(e); value != "" {
			n.Content = append(n.Content, text(m.key), text(value))
		}
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range e.Scopes {
		list.Content = append(list.Content, text(string(s)))
	}
	n.Content = append(n.Content, text(keyScopes), list)
	quota := &yaml.Node{Kind: yaml.MappingNode}
	for _, l := range e.Quota.limits() {
		if *l.value >= 0 {
			quota.Content = append(quota.Content, text(l.key), &yaml.Node{Kind: yaml.ScalarNode, Value: plain(*l.value)})
		}
	}
	if len(quota.Content) > 0 {
		n.Content = append(n.Content, text(keyQuota), quota)
	}
	return n
}
