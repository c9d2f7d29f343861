package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/crash"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Where a setting's value can come from, in order of precedence.
const (
	fromFlag    = "flag"
	FromEnv     = "environment"
	FromFile    = "file"
	FromDefault = "default"
)

const envPrefix = "BRIM_"

// envConfig names the configuration file, like --config.
const envConfig = envPrefix + "CONFIG"

// EnvURL names the daemon that `brim query` asks, like --url.
const EnvURL = envPrefix + "URL"

// envPrometheus was read by `brim doctor --trend`, which was removed. It is ignored, so that
// a daemon starts where it is still set.
const envPrometheus = envPrefix + "PROMETHEUS"

// Sources are the sources of a configuration.
type Sources struct {
	Flags map[string]string // those that were given, by name
	Env   []string          // NAME=value
	Path  string            // of the file; empty: the file in the environment, or none
}

// file returns the path of the configuration file, empty if there is none.
func (s Sources) file() string { return cmp.Or(s.Path, config.LookupEnv(s.Env, envConfig)) }

// An Origin says where the value in force came from.
type Origin struct {
	Source string `json:"source"`
	Place  string `json:"place,omitempty"` // flag, variable or line
}

func (o Origin) String() string {
	if o.Place == "" {
		return o.Source
	}
	return o.Source + " " + o.Place
}

// An effective setting is a value in force.
type effective struct {
	Setting
	text   string
	origin Origin
	own    bool // set by its group, and not inherited
}

// Config has the checked settings, and the text and origin of each value.
type Config struct {
	Settings
	from      Sources
	effective []effective            // of the top level
	groups    map[string][]effective // of each stream and subscription, by its path in the file; own and inherited ones
}

// Load reads and checks the configuration. The error is a config.UsageError with every problem
// that was found.
func (s Sources) Load() (*Config, error) {
	c := &Config{from: s, groups: make(map[string][]effective)}
	list := c.All()
	variables, path, envErr := readEnv(s.Env, list)
	f, fileErr := readFile(cmp.Or(s.Path, path), list)
	problems := []error{envErr, fileErr}
	for _, setting := range list {
		e := effective{Setting: setting, text: setting.Initial, origin: Origin{Source: FromDefault}}
		if v, ok := f.values[setting.path()]; ok {
			e.text, e.origin = v.text, f.origin(v)
		}
		if text, ok := variables[setting.Variable()]; ok {
			e.text, e.origin = text, Origin{FromEnv, setting.Variable()}
		}
		if text, ok := s.Flags[setting.Name]; ok {
			e.text, e.origin = text, Origin{fromFlag, "--" + setting.Name}
		}
		c.effective = append(c.effective, e)
		if err := setting.set(e.text); err != nil {
			problems = append(problems, e.problem(setting.Name, err))
		}
	}
	problems = append(problems, applyFormatDefaults(c.effective, c.Default.BucketFormat))
	problems = append(problems, c.addStreams(f)...)
	problems = append(problems, c.addSubscriptions(f)...)
	if errors.Join(problems...) == nil {
		c.defaultAck()
		problems = []error{c.resolveURI(), c.checkTogether()}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, config.Usage(err)
	}
	return c, nil
}

// named returns the effective setting of that name, which must be in the list.
func named(list []effective, name string) *effective {
	return &list[slices.IndexFunc(list, func(e effective) bool { return e.Name == name })]
}

// defaultAck makes stored the default ack if there is no journal.
func (c *Config) defaultAck() {
	if e := named(c.effective, "ack"); e.origin.Source == FromDefault && !c.journaling() {
		c.Ack, e.text = telemetry.Stored, string(telemetry.Stored)
	}
}

// applyFormatDefaults sets the format's defaults for bucket settings that were not set.
func applyFormatDefaults(list []effective, format store.Format) error {
	var problems []error
	for name, columns := range map[string]string{"bucket-max-readings": "20000", "bucket-max-bytes": "2MiB", "seal-after": "2h"} {
		e := named(list, name)
		if e.origin.Source != FromDefault {
			continue
		}
		if e.text = e.Initial; format == store.Columns {
			e.text = columns
		}
		problems = append(problems, e.set(e.text))
	}
	return errors.Join(problems...)
}

// problem returns an error that says where the value was set.
func (e effective) problem(name string, err error) error {
	switch e.origin.Source {
	case FromFile:
		return fmt.Errorf("%s: %s: %w", e.origin.Place, name, err)
	case FromEnv:
		return fmt.Errorf("%s: %w", e.origin.Place, err)
	default:
		return fmt.Errorf("--%s: %w", name, err)
	}
}

// readEnv returns the settings in the environment, by variable, and the path of the
// configuration file if there is one. An unknown variable that begins with BRIM_ is an
// error, since most of them are misspelt.
func readEnv(env []string, list []Setting) (values map[string]string, path string, err error) {
	known := []string{envConfig, EnvURL, EnvToken, EnvTokenFile, EnvCA, EnvCert, EnvKey}
	settings := make(map[string]bool)
	for _, s := range list {
		known, settings[s.Variable()] = append(known, s.Variable()), true
	}
	// Kubernetes adds these variables for a service named brim.
	link := regexp.MustCompile(`^BRIM_(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP)(_.+)?)?)$`)
	values = make(map[string]string)
	var problems []error
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case settings[name]:
			values[name] = value
		case name == envConfig:
			path = value
		case !strings.HasPrefix(name, envPrefix), slices.Contains(known, name), name == envPrometheus, name == crash.Variable, link.MatchString(name):
		default:
			allowed := config.Choices{Names: known, Where: "each flag that `brim serve --help` lists has a variable, as BRIM_MONGO_URI is for --mongo-uri"}
			problems = append(problems, fmt.Errorf("unknown variable %s%s", name, allowed.InsteadOf(name)))
		}
	}
	return values, path, errors.Join(problems...)
}

// addGroup adds a stream or a subscription with these settings, which have the values of the top
// level until the file sets them.
func (c *Config) addGroup(f file, path string, settings []Setting) (problems []error) {
	for _, setting := range settings {
		e := *named(c.effective, setting.Name)
		e.Setting = setting
		key := path + "." + setting.keyInGroup()
		if v, ok := f.values[key]; ok {
			e.text, e.origin, e.own = v.text, f.origin(v), true
			if err := setting.set(e.text); err != nil {
				problems = append(problems, e.problem(key, err))
			}
		}
		c.groups[path] = append(c.groups[path], e)
	}
	return problems
}

// addStreams adds the streams of the file, and the default one if it is not among them.
func (c *Config) addStreams(f file) (problems []error) {
	names := f.groups[streamsKey]
	if c.Default.Name != "" && !slices.Contains(names, c.Default.Name) {
		names = append(names, c.Default.Name)
	}
	slices.Sort(names)
	top := c.Default // a copy, since c.Default changes below
	for _, name := range names {
		s := top // by value: a stream inherits what it does not set
		s.Name = name
		path := streamsKey + "." + name
		problems = append(problems, c.addGroup(f, path, s.all())...)
		problems = append(problems, applyFormatDefaults(c.groups[path], s.BucketFormat))
		c.Streams = append(c.Streams, s)
		if name == c.Default.Name {
			c.Default = s
		}
	}
	return problems
}

// Variables with which a command authenticates to a daemon. There is no flag for a token,
// because every process of the machine can read command lines.
const (
	EnvToken     = envPrefix + "TOKEN"
	EnvTokenFile = envPrefix + "TOKEN_FILE" // like --token-file
	EnvCA        = envPrefix + "CA"         // like --ca
	EnvCert      = envPrefix + "CERT"       // like --cert
	EnvKey       = envPrefix + "KEY"        // like --key
)

// streamsKey is where a configuration file describes its streams.
const streamsKey = "streams"

// A file is a configuration file that was read.
type file struct {
	path   string
	values map[string]fileValue // by key; nested keys are joined by dots
	groups map[string][]string  // names of the streams and of the subscriptions
}

type fileValue struct {
	text string
	line int
}

// origin returns where a value was set, as FILE:LINE.
func (f *file) origin(v fileValue) Origin {
	return Origin{FromFile, fmt.Sprintf("%s:%d", f.path, v.line)}
}

// readFile reads a configuration file; an empty path stands for none. list has the known
// settings.
func readFile(path string, list []Setting) (file, error) {
	f := file{path: path, values: make(map[string]fileValue), groups: make(map[string][]string)}
	if path == "" {
		return f, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read configuration: %w", err)
	}
	y := &config.YAML{Path: path}
	if top := y.Parse(content); top != nil {
		known := make(map[string]Setting)
		for _, s := range list {
			known[s.path()] = s
		}
		f.read(y, top, "", known)
	}
	return f, y.Err()
}

// read reads a mapping: settings, groups of settings, streams and subscriptions. prefix is the
// path of the mapping; known has the settings allowed in it, by path.
func (f *file) read(y *config.YAML, mapping *yaml.Node, prefix string, known map[string]Setting) {
	var allowed []string // sorted
	for _, path := range slices.Sorted(maps.Keys(known)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, prefix), ".")
		if !slices.Contains(allowed, name) {
			allowed = append(allowed, name)
		}
	}
	if prefix == "" {
		allowed = append(allowed, mqttKey, streamsKey)
	}
	y.Each(mapping, prefix, config.Choices{Names: allowed, Where: "`brim config print` without a file lists all"}, func(key, value *yaml.Node) {
		path := prefix + key.Value
		s, single := known[path]
		switch {
		case single:
			f.readValue(y, path, key, value, s.list)
		case path == streamsKey, path == mqttKey:
			y.Each(value, path, config.Choices{}, func(name, value *yaml.Node) { f.readGroup(y, path, name, value) })
		default:
			group := maps.Clone(known)
			maps.DeleteFunc(group, func(p string, _ Setting) bool { return !strings.HasPrefix(p, path+".") })
			f.read(y, value, path+".", group)
		}
	})
}

// readGroup reads the settings of a stream or a subscription.
func (f *file) readGroup(y *config.YAML, kind string, name, settings *yaml.Node) {
	what, allowed := "stream", (&Stream{}).all()
	if kind == mqttKey {
		what, allowed = "subscription", (&Subscription{}).all()
	}
	if err := checkStreamName(name.Value); err != nil {
		y.Wrong(name, "%s: %s", kind, strings.ReplaceAll(err.Error(), "stream", what))
		return
	}
	f.groups[kind] = append(f.groups[kind], name.Value)
	prefix, own := kind+"."+name.Value+".", make(map[string]Setting)
	for _, s := range allowed {
		own[prefix+s.keyInGroup()] = s
	}
	f.read(y, settings, prefix, own)
}

// readValue reads the text of a setting, regardless of its YAML type. A list becomes a text
// with commas, as in a flag.
func (f *file) readValue(y *config.YAML, path string, key, value *yaml.Node, list bool) {
	single := func(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }
	switch {
	case single(value):
		f.values[path] = fileValue{value.Value, key.Line}
	case list && value.Kind == yaml.SequenceNode:
		texts := make([]string, len(value.Content))
		for i, n := range value.Content {
			if !single(n) || n.Value == "" || strings.Contains(n.Value, ",") {
				y.Wrong(key, "%s cannot hold %q; allowed: a list of names without commas, like [a, b]", path, n.Value)
				return
			}
			texts[i] = n.Value
		}
		f.values[path] = fileValue{strings.Join(texts, ","), key.Line}
	default:
		y.Wrong(key, "%s must have a single value", path)
	}
}

// A MongoDB URI is given directly, or in a file, as containers get secrets. The source with
// higher precedence wins.
const (
	UriSetting     = "mongo-uri"
	UriFileSetting = "mongo-uri-file"
)

// resolveURI decides which of the two is used, and reads the file.
func (c *Config) resolveURI() error {
	rank := func(e *effective) int {
		return slices.Index([]string{fromFlag, FromEnv, FromFile, FromDefault}, e.origin.Source)
	}
	direct, file := named(c.effective, UriSetting), named(c.effective, UriFileSetting)
	switch {
	case file.text == "":
		return nil
	case direct.text == "" || rank(file) < rank(direct):
		uri, err := config.ReadURIFile(file.text)
		if err != nil {
			return file.problem(UriFileSetting, err)
		}
		c.MongoURI = uri
		return nil
	case rank(direct) < rank(file):
		c.MongoURIFile = ""
		return nil
	default:
		return fmt.Errorf("%s and %s both say where MongoDB is (%s, %s); give one of them", UriSetting, UriFileSetting, direct.origin, file.origin)
	}
}

// Shown is a setting as commands print it.
type Shown struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // secrets are masked
	Origin        // where it was set
}

// Described is the configuration in effect, with the source of each value.
type Described struct {
	Settings []Shown            `json:"settings"`
	Streams  map[string][]Shown `json:"streams"`
	MQTT     map[string][]Shown `json:"mqtt,omitempty"` // subscriptions
}

// Describe returns the settings in effect; secrets are masked.
func (c *Config) Describe() Described {
	d := Described{Settings: shown(c.effective), Streams: make(map[string][]Shown), MQTT: make(map[string][]Shown)}
	for path, list := range c.groups {
		if kind, name, _ := strings.Cut(path, "."); kind == streamsKey {
			d.Streams[name] = shown(list)
		} else {
			d.MQTT[name] = shown(list)
		}
	}
	return d
}

func shown(list []effective) (out []Shown) {
	for _, e := range list {
		out = append(out, e.shown())
	}
	return out
}

func (e effective) shown() Shown {
	s := Shown{Name: e.path(), Value: e.text, Origin: e.origin}
	if e.secret {
		s.Value = config.MaskURI(e.text)
	}
	return s
}

// Text returns a configuration file with the same settings, each with its origin in a comment.
// A value with a masked secret is commented out, since it would not work.
func (c *Config) Text() string {
	var b strings.Builder
	for _, e := range c.effective {
		c.printSetting(&b, e)
	}
	last := ""
	for _, path := range slices.Sorted(maps.Keys(c.groups)) {
		own := slices.DeleteFunc(slices.Clone(c.groups[path]), func(e effective) bool { return !e.own })
		kind, name, _ := strings.Cut(path, ".")
		if kind == mqttKey && name == topSubscription && len(own) == 0 {
			continue // the settings above make it
		}
		if kind != last {
			fmt.Fprintf(&b, "%s: # what they do not set is as above\n", kind)
			last = kind
		}
		if len(own) == 0 {
			fmt.Fprintf(&b, "  %s: {}\n", quoteYAML(name))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", quoteYAML(name))
		for _, e := range own {
			fmt.Fprintf(&b, "%-34s # %s\n", "    "+e.keyInGroup()+": "+quoteYAML(e.text), e.origin)
		}
	}
	return b.String()
}

func (c *Config) printSetting(b *strings.Builder, e effective) {
	name, indent := e.path(), ""
	if group, key, nested := strings.Cut(name, "."); nested {
		fmt.Fprintf(b, "%s:\n", group)
		name, indent = key, "  "
	}
	value, secret := e.shown().Value, ""
	if value != e.text {
		indent, secret = "# "+indent, "; the secret is masked, give it in "+e.Variable()
	}
	fmt.Fprintf(b, "%-34s # %s%s\n", indent+name+": "+quoteYAML(value), e.origin, secret)
}

// quoteYAML returns text as YAML that is read back as the same text, quoted only if necessary.
func quoteYAML(text string) string {
	if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
		return text // settings are read as text, regardless of their YAML type
	}
	out, err := yaml.Marshal(text)
	if bare := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(bare, "\n") {
		return bare
	}
	return strconv.Quote(text)
}

// SplitErrors splits joined errors, which are separated by newlines.
func SplitErrors(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

// Names lists the streams, sorted.
func (c *Config) Names() (names []string) {
	for _, s := range c.Streams {
		names = append(names, s.Name)
	}
	return names
}
