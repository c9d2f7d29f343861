package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// An Entry is an identity as the access file has it.
type Entry struct {
	Name         string
	Certificate  string // KIND:NAME, or a common name; empty: it has a token
	Scopes       []Scope
	SensorPrefix string    // empty: all sensors
	Created      time.Time // zero: not known
	Expires      time.Time // zero: never
	Quota        Quota     // what the file says; what is unset is as the daemon's settings

	hash [sha256.Size]byte // of the token
}

// credential is what an identity shows, in the form in which it is looked up.
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
	maxName   = 64      // characters
	maxPrefix = 1 << 10 // bytes, as a sensor's id
)

// An accessFile is one that is being read.
type accessFile struct {
	path     string
	entries  []Entry
	emptied  bool // the list is written out as []
	problems []error
}

// Parse reads an access file; path is for errors only:
//
//	identities:
//	  - name: north                    # unique, 1 to 64 characters
//	    hash: sha256:0f34…             # of a token; or certificate: cn:NAME, dns:NAME, uri:URI or email:ADDRESS
//	    scopes: [ingest, read]         # of ingest, read and admin; admin includes the others
//	    sensor_prefix: north-          # only sensors whose ids begin so
//	    created: 2026-11-21T10:00:00Z
//	    expires: 2027-11-21T10:00:00Z
//	    quota: {requests_per_second: 50, readings_per_second: 1000, new_sensors_per_second: 10, active_sensors: 5000}
//
// Errors name the line and what is allowed; several are joined. What could be a
// token by mistake is not repeated in them.
func Parse(path string, content []byte) ([]Entry, error) {
	entries, _, err := parseFile(path, content)
	return entries, err
}

// parseFile is Parse, and reports whether a file says itself that it has no
// identities.
func parseFile(path string, content []byte) (entries []Entry, emptied bool, err error) {
	root, err := parseYAML(path, content)
	if err != nil {
		return nil, false, err
	}
	f := accessFile{path: path}
	f.plain(root)
	if top := topOf(root); top != nil && len(f.problems) == 0 { // else there are comments at most
		f.each(top, "the access file", []string{keyIdentities}, func(_, value *yaml.Node) { f.identities(value) })
	}
	if err := errors.Join(f.problems...); err != nil {
		return nil, false, err
	}
	return f.entries, f.emptied, nil
}

// plain refuses what makes a value say something else than what stands there:
// anchors, references to them, and tags.
func (f *accessFile) plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		f.wrong(n, "*%s refers to another place of the file; write out what it holds", shownText(n.Value))
	case n.Anchor != "":
		f.wrong(n, "the anchor &%s is not allowed in an access file; write out what it holds wherever it is needed", shownText(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		f.wrong(n, "the tag %s is not allowed in an access file; leave it out", shownText(n.Tag))
	}
	for _, child := range n.Content {
		f.plain(child)
	}
}

// parseYAML says in which line a file is broken. The parser names none where it
// is the first.
func parseYAML(path string, content []byte) (*yaml.Node, error) {
	if !utf8.Valid(content) { // YAML may be UTF-16 as well, and what is added to it would not be
		return nil, fmt.Errorf("%s:1: this is no UTF-8, which an access file must be", path)
	}
	var root, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	err := decoder.Decode(&root)
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return nil, fmt.Errorf("%s:%d: a second document begins here; one is allowed", path, more.Line)
		}
	}
	if errors.Is(err, io.EOF) {
		return &root, nil
	}
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), "1"
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		line, text, _ = strings.Cut(rest, ": ")
	}
	return nil, fmt.Errorf("%s:%s: this is no YAML: %s", path, line, shownText(text))
}

// topOf returns what a document holds; nil: nothing.
func topOf(root *yaml.Node) *yaml.Node {
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil
	}
	return root.Content[0]
}

func (f *accessFile) wrong(n *yaml.Node, format string, args ...any) {
	f.problems = append(f.problems, fmt.Errorf("%s:%d: %s", f.path, n.Line, fmt.Sprintf(format, args...)))
}

// each calls take for every key of a mapping that is allowed, once.
func (f *accessFile) each(n *yaml.Node, what string, allowed []string, take func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.wrong(n, "%s: keys with values are expected here; allowed are %s", what, strings.Join(allowed, ", "))
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := seen[key.Value]
		seen[key.Value] = key.Line
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, key.Value):
			f.wrong(key, "%s: unknown key %q; allowed are %s", what, shownText(key.Value), strings.Join(allowed, ", "))
		case twice:
			f.wrong(key, "%s: %s is there already, in line %d", what, key.Value, line)
		default:
			take(key, value)
		}
	}
}

func (f *accessFile) identities(list *yaml.Node) {
	if list.Tag == "!!null" {
		return
	}
	if list.Kind != yaml.SequenceNode {
		f.wrong(list, "%s: a list is expected here, each of it beginning with - name: …", keyIdentities)
		return
	}
	f.emptied = len(list.Content) == 0
	names, credentials := make(map[string]int), make(map[string]int)
	for _, n := range list.Content {
		before := len(f.problems)
		e := f.identity(n)
		if len(f.problems) > before {
			continue
		}
		credential := e.credential()
		if e.Certificate == "" {
			credential = credential[:prefixBytes]
		}
		if line, twice := names[e.Name]; twice {
			f.wrong(n, "%s: the name %q is there already, in line %d", keyIdentities, e.Name, line)
		} else if line, twice := credentials[credential]; twice {
			f.wrong(n, "%s: %s shows the same token or certificate as the identity in line %d; each needs its own", keyIdentities, e.Name, line)
		}
		names[e.Name], credentials[credential] = n.Line, n.Line
		f.entries = append(f.entries, e)
	}
}

// identity reads one identity. What is wrong is in f.problems.
func (f *accessFile) identity(n *yaml.Node) (e Entry) {
	e.Quota = NoQuota()
	keys := []string{keyName, keyHash, keyCertificate, keyScopes, keyPrefix, keyCreated, keyExpires, keyQuota}
	seen := make(map[string]bool)
	f.each(n, "an identity", keys, func(key, value *yaml.Node) {
		seen[key.Value] = true
		if err := f.member(&e, key.Value, value); err != nil {
			f.wrong(value, "%s: %s", key.Value, err)
		}
	})
	if n.Kind != yaml.MappingNode {
		return e
	}
	who := "an identity"
	if e.Name != "" {
		who = e.Name
	}
	if !seen[keyName] {
		f.wrong(n, "%s: name is missing", who)
	}
	if !seen[keyScopes] {
		f.wrong(n, "%s: scopes are missing, as in scopes: [ingest]; allowed are %s", who, joinScopes(scopes[:]))
	}
	if seen[keyHash] == seen[keyCertificate] {
		f.wrong(n, "%s: one of hash and certificate is needed, and not both; brim token create makes a token with its hash", who)
	}
	return e
}

// member takes the value of one key of an identity.
func (f *accessFile) member(e *Entry, key string, value *yaml.Node) (err error) {
	switch key {
	case keyScopes:
		e.Scopes, err = scopesOf(value)
		return err
	case keyQuota:
		f.quota(&e.Quota, value)
		return nil
	}
	if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
		return errors.New("a single value is expected here")
	}
	text := value.Value
	switch key {
	case keyName:
		e.Name, err = text, checkName(text)
	case keyHash:
		e.hash, err = hashOf(text)
	case keyCertificate:
		e.Certificate, err = text, checkCertificate(text)
	case keyPrefix:
		e.SensorPrefix, err = text, checkPrefix(text)
	case keyCreated:
		e.Created, err = instant(text)
	case keyExpires:
		e.Expires, err = instant(text)
	}
	return err
}

// scopes are all there are.
var scopes = [...]Scope{Ingest, Read, Admin}

func scopesOf(n *yaml.Node) ([]Scope, error) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return nil, fmt.Errorf("a list is expected here, as [ingest, read]; allowed are %s", joinScopes(scopes[:]))
	}
	names := make([]string, len(n.Content))
	for i, item := range n.Content {
		if item.Kind == yaml.ScalarNode {
			names[i] = item.Value
		}
	}
	return ParseScopes(names)
}

// ParseScopes reads the names of scopes, at least one and each once.
func ParseScopes(names []string) ([]Scope, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("at least one scope is needed; allowed are %s", joinScopes(scopes[:]))
	}
	out := make([]Scope, 0, len(scopes))
	for _, name := range names {
		switch s := Scope(name); {
		case !slices.Contains(scopes[:], s):
			return nil, fmt.Errorf("unknown scope %q; allowed are %s", shownText(name), joinScopes(scopes[:]))
		case slices.Contains(out, s):
			return nil, fmt.Errorf("the scope %s is there twice", s)
		default:
			out = append(out, s)
		}
	}
	return out, nil
}

func checkName(name string) error {
	switch n := utf8.RuneCountInString(name); {
	case n == 0 || n > maxName:
		return fmt.Errorf("it has %d characters; allowed are 1 to %d", n, maxName)
	case !printable(name) || strings.TrimSpace(name) != name:
		return errors.New("only characters that can be printed are allowed, and no space at the ends")
	case looksSecret(name):
		return errors.New("this looks like a token; a name is what people call the identity, and is shown")
	}
	return nil
}

func checkPrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New("it is empty; leave it out to allow all sensors")
	case len(prefix) > maxPrefix:
		return fmt.Errorf("it has %d bytes; allowed are %d", len(prefix), maxPrefix)
	case !printable(prefix):
		return errors.New("only characters that can be printed are allowed, as in the id of a sensor")
	}
	return nil
}

func hashOf(text string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(sha256.Size) {
		return sum, errors.New("sha256: and the 64 hexadecimal digits of a token's hash are expected here; a token itself does not belong into this file")
	}
	if _, err := hex.Decode(sum[:], []byte(digits)); err != nil {
		return sum, errors.New("what follows sha256: is not hexadecimal")
	}
	return sum, nil
}

func instant(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time like 2027-11-21T10:00:00Z", shownText(text))
	}
	return at, nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func looksSecret(s string) bool { return strings.Contains(s, tokenPrefix) }

// shownText is a text for an error: short, and without what may be a token.
func shownText(s string) string {
	const most = 100
	if at := strings.Index(s, tokenPrefix); at >= 0 {
		return s[:min(at, most)] + tokenPrefix + "…"
	}
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// number reads a quota of up to most; whole ones only where that is said.
func number(n *yaml.Node, most float64, whole bool) (float64, error) {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind == yaml.ScalarNode && err == nil {
		err = checkLimit(v, most, whole)
	}
	if n.Kind != yaml.ScalarNode || err != nil {
		return 0, fmt.Errorf("%q is not %s", shownText(n.Value), allowedLimit(most, whole))
	}
	return v, nil
}
