package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	yaml "go.yaml.in/yaml/v3"
)

// heading begins a new access file.
const heading = `# Who may do what with Brim. brim token create, list and revoke change this file,
# and so may you: a daemon sees a change within two seconds.
`

// Load reads an access file as a Guard does. Errors are as those of Parse.
func Load(path string) ([]Entry, error) {
	content, _, err := readAccessFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, content)
}

// Add writes an identity into an access file, which is made if there is none.
// Hash is that of its token, empty where the entry has a certificate. The change
// is made at once or not at all, and one at a time: ctx bounds the wait for
// others. Comments and order of what is there stay; blank lines do not.
func Add(ctx context.Context, path string, e Entry, hash string) error {
	if err := e.check(); err != nil {
		return err
	}
	return edit(ctx, path, func(list *yaml.Node) error {
		if indexOf(list, e.Name) >= 0 {
			return ErrIdentityExists
		}
		list.Content = append(list.Content, e.node(hash))
		return nil
	})
}

// What Add and Remove return for the name of an identity.
var (
	ErrIdentityExists = errors.New("there is an identity of this name already")
	ErrNoIdentity     = errors.New("there is no identity of this name")
)

// Remove takes an identity out of an access file, as Add puts one in.
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

// indexOf returns where the identity of a name is in the list, -1 if nowhere.
func indexOf(list *yaml.Node, name string) int {
	return slices.IndexFunc(list.Content, func(item *yaml.Node) bool {
		value := valueOf(item, keyName)
		return value != nil && value.Value == name
	})
}

// check looks at what is given of an entry that is to be written.
func (e *Entry) check() error {
	var problems []error
	note := func(key string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", key, err))
		}
	}
	note(keyName, checkName(e.Name))
	if e.SensorPrefix != "" {
		note(keyPrefix, checkPrefix(e.SensorPrefix))
	}
	if e.Certificate != "" {
		note(keyCertificate, checkCertificate(e.Certificate))
	}
	return errors.Join(append(problems, e.Quota.check())...)
}

func edit(ctx context.Context, path string, change func(list *yaml.Node) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // else the link would be replaced
	}
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Path(), err)
	}
	defer func() { _ = lock.Close() }() // which is all that could be done
	content, info, err := readAccessFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		content, err = []byte(heading), nil
	}
	if err != nil {
		return err
	}
	if _, err := Parse(path, content); err != nil {
		return fmt.Errorf("change nothing, because the access file has faults: %w", err)
	}
	changed, err := changedBy(path, content, change)
	if err != nil {
		return err
	}
	if _, err := Parse(path, changed); err != nil {
		return fmt.Errorf("change nothing, because the access file would not be right any more: %w", err)
	}
	return replaceFile(path, changed, info)
}

// changedBy returns the content of a file whose list of identities is changed.
func changedBy(path string, content []byte, change func(list *yaml.Node) error) ([]byte, error) {
	root, err := parseYAML(path, content)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	top := topOf(root)
	switch {
	case top != nil:
	case len(root.Content) > 0: // a null
		top = &yaml.Node{Kind: yaml.MappingNode}
		root.Content[0] = top
	default: // comments at most, which no node holds
		if out.Write(content); len(content) > 0 && content[len(content)-1] != '\n' {
			out.WriteByte('\n')
		}
		top = &yaml.Node{Kind: yaml.MappingNode}
		root = top
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
	if len(list.Content) == 0 { // which is written as [], and not behind a comment
		for _, n := range top.Content {
			n.HeadComment, n.LineComment = strings.TrimPrefix(n.HeadComment+"\n"+n.LineComment, "\n"), ""
		}
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(root), encoder.Close()); err != nil {
		return nil, fmt.Errorf("write the access file: %w", err)
	}
	return out.Bytes(), nil
}

// valueOf returns the value of a mapping's key; nil: there is none.
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

// node is the entry as it stands in the file.
func (e *Entry) node(hash string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put := func(key string, value *yaml.Node) { n.Content = append(n.Content, text(key), value) }
	put(keyName, text(e.Name))
	if e.Certificate != "" {
		put(keyCertificate, text(e.Certificate))
	} else {
		put(keyHash, text(hash))
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range e.Scopes {
		list.Content = append(list.Content, text(string(s)))
	}
	put(keyScopes, list)
	if e.SensorPrefix != "" {
		put(keyPrefix, text(e.SensorPrefix))
	}
	if !e.Created.IsZero() {
		put(keyCreated, text(e.Created.UTC().Format(time.RFC3339)))
	}
	if !e.Expires.IsZero() {
		put(keyExpires, text(e.Expires.UTC().Format(time.RFC3339)))
	}
	if q := e.Quota.node(); len(q.Content) > 0 {
		put(keyQuota, q)
	}
	return n
}

func (q Quota) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, l := range q.limits() {
		if *l.place >= 0 {
			n.Content = append(n.Content, text(l.key), &yaml.Node{Kind: yaml.ScalarNode, Value: plain(*l.place)})
		}
	}
	return n
}

// replaceFile writes a file beside path and puts it in its place, so that who
// reads sees the one or the other. It keeps mode and owner of what was there; a
// new file is for its owner alone.
func replaceFile(path string, content []byte, before os.FileInfo) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".access-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write the access file: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // if it is not in its place by then
	if before != nil {
		err = likeBefore(f, before)
	}
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the access file: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("put the access file in place: %w", err)
	}
	if d, err := os.Open(dir); err == nil { // where folders can be synced
		_ = d.Sync()
		d.Close()
	}
	return nil
}
