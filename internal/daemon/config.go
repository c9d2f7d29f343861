package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yamlnode "go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Where a setting's value can come from, the later ones first.
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

// envPrometheus was read by `brim doctor --trend`, which is gone. It is ignored,
// so that one that is still set stops no daemon.
const envPrometheus = envPrefix + "PROMETHEUS"

// Sources is what a configuration is made from.
type Sources struct {
	Flags map[string]string // those that were given, by name
	Env   []string          // NAME=value
	Path  string            // of the file; empty: the one that the environment names, or none
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
	stream string // that sets it for itself; empty at the top level
}

// ownOf reports whether the stream sets the value, and does not inherit it.
func (e effective) ownOf(stream string) bool { return e.stream == stream }

// A layer holds what one source says.
type layer struct {
	source string
	values *koanf.Koanf
	place  func(s Setting) string
}

// Config is the outcome: checked settings, and for people each value's
// text with its origin.
type Config struct {
	Settings
	from      Sources // it was loaded from
	effective []effective
	streams   map[string][]effective // what each stream sets for itself or inherits
}

// Load reads and checks a whole configuration. Every problem that it finds is
// in the error, which is a usageError.
func (s Sources) Load() (*Config, error) {
	c := &Config{from: s, streams: make(map[string][]effective)}
	list := c.All()
	layers, f, problems := s.layers(list)
	merged := koanf.New(".")
	for _, l := range slices.Backward(layers) {
		if err := merged.Merge(l.values); err != nil {
			problems = append(problems, fmt.Errorf("merge %s: %w", l.source, err))
		}
	}
	for _, setting := range list {
		e := effective{Setting: setting, text: merged.String(setting.path()), origin: originOf(setting, layers)}
		c.effective = append(c.effective, e)
		if err := setting.set(e.text); err != nil {
			problems = append(problems, e.problem(setting.Name, err))
		}
	}
	problems = append(problems, c.addStreams(f)...)
	if len(problems) == 0 {
		c.fitAck()
		if err := c.fitURI(); err != nil {
			problems = append(problems, err)
		}
		if err := c.checkTogether(); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, config.Usage(err)
	}
	return c, nil
}

// fitAck makes stored the default level where there is no journal.
func (c *Config) fitAck() {
	at := slices.IndexFunc(c.effective, func(e effective) bool { return e.Name == "ack" })
	if e := &c.effective[at]; e.origin.Source == FromDefault && !c.journaling() {
		c.Ack, e.text = telemetry.Stored, string(telemetry.Stored)
	}
}

// problem says what is wrong with a value and where it stands.
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

func originOf(s Setting, layers []layer) Origin {
	for _, l := range layers {
		if l.values.Exists(s.path()) {
			return Origin{Source: l.source, Place: l.place(s)}
		}
	}
	return Origin{Source: FromDefault}
}

// layers reads all sources, those that win first. What is wrong with one of
// them is among the problems, and the others are still looked at.
func (s Sources) layers(list []Setting) ([]layer, *file, []error) {
	var problems []error
	defaults, flags := make(map[string]any), make(map[string]any)
	var keys []string
	for _, setting := range list {
		keys = append(keys, setting.path())
		defaults[setting.path()] = setting.Initial
		if text, ok := s.Flags[setting.Name]; ok {
			flags[setting.path()] = text
		}
	}
	variables, path, err := readEnv(s.Env, list)
	if err != nil {
		problems = append(problems, err)
	}
	path = cmp.Or(s.Path, path)
	f := &file{values: koanf.New(".")}
	if path != "" {
		read, err := readFile(path, keys)
		if err != nil {
			problems = append(problems, err)
		}
		if read != nil {
			f = read
		}
	}
	return []layer{
		{fromFlag, fromMap(flags), func(s Setting) string { return "--" + s.Name }},
		{FromEnv, fromMap(variables), Setting.Variable},
		{FromFile, f.values, func(s Setting) string { return f.place(s.path()) }},
		{FromDefault, fromMap(defaults), func(Setting) string { return "" }},
	}, f, problems
}

func fromMap(values map[string]any) *koanf.Koanf {
	k := koanf.New(".")
	_ = k.Load(confmap.Provider(values, "."), nil) // a map cannot fail
	return k
}

// readEnv returns the settings in the environment, by key, and the path of the
// configuration file if there is one. A variable that begins like ours and is
// not known is an error, since it is misspelt more often than not.
func readEnv(env []string, list []Setting) (values map[string]any, path string, err error) {
	known := make(map[string]string)
	for _, s := range list {
		known[s.Variable()] = s.path()
	}
	// What Kubernetes adds for a service that is called brim.
	link := regexp.MustCompile(`^BRIM_(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP)(_.+)?)?)$`)
	values = make(map[string]any)
	var problems []error
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		key, ok := known[name]
		switch {
		case ok:
			values[key] = value
		case name == envConfig:
			path = value
		case name == EnvURL, name == envPrometheus, slices.Contains(clientVariables(), name), name == envFault && envFault != "", !strings.HasPrefix(name, envPrefix), link.MatchString(name):
		default:
			names := slices.Concat(slices.Sorted(maps.Keys(known)), []string{envConfig, EnvURL}, clientVariables())
			allowed := config.Choices{Names: names, Where: "each flag that `brim serve --help` lists has a variable, as BRIM_MONGO_URI is for --mongo-uri"}
			problems = append(problems, fmt.Errorf("unknown variable %s%s", name, allowed.InsteadOf(name)))
		}
	}
	return values, path, errors.Join(problems...)
}

// addStreams makes the streams that the file describes, and the default one
// where it does not. What a stream leaves out is as at the top level.
func (c *Config) addStreams(f *file) []error {
	var problems []error
	names := f.streams()
	if c.Default.Name != "" && !slices.Contains(names, c.Default.Name) {
		names = append(names, c.Default.Name)
	}
	slices.Sort(names)
	top := c.Default // before the default stream's own settings are put into it
	for _, name := range names {
		s := top // by value: a stream inherits what it does not set
		s.Name = name
		for _, setting := range s.all() {
			at := slices.IndexFunc(c.effective, func(e effective) bool { return e.Name == setting.Name })
			e := c.effective[at]
			e.Setting = setting
			if key := streamsKey + "." + name + "." + setting.Name; f.values.Exists(key) {
				e.text, e.origin, e.stream = f.values.String(key), Origin{FromFile, f.place(key)}, name
				if err := setting.set(e.text); err != nil {
					problems = append(problems, e.problem(key, err))
				}
			}
			c.streams[name] = append(c.streams[name], e)
		}
		c.Streams = append(c.Streams, s)
		if name == c.Default.Name {
			c.Default = s
		}
	}
	return problems
}

// How a command shows a daemon who it is, in the environment. A token stands on
// no command line, where every process of the machine can read it.
const (
	EnvToken     = envPrefix + "TOKEN"
	EnvTokenFile = envPrefix + "TOKEN_FILE" // like --token-file
	EnvCA        = envPrefix + "CA"         // like --ca
	EnvCert      = envPrefix + "CERT"       // like --cert
	EnvKey       = envPrefix + "KEY"        // like --key
)

// clientVariables are the names of all of these.
func clientVariables() []string { return []string{EnvToken, EnvTokenFile, EnvCA, EnvCert, EnvKey} }

// streamsKey is where a configuration file describes its streams.
const streamsKey = "streams"

// A file is a configuration file. Nested keys are joined by dots.
type file struct {
	path   string
	values *koanf.Koanf
	lines  map[string]int // by key
}

// place says where key stands, as editors understand it.
func (f *file) place(key string) string {
	if line, ok := f.lines[key]; ok {
		return fmt.Sprintf("%s:%d", f.path, line)
	}
	return f.path
}

// readFile reads a configuration file; known are the keys that it may hold
// beside its streams. Of the errors, several are joined.
func readFile(path string, known []string) (*file, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	f := &file{path: path, values: koanf.New("."), lines: make(map[string]int)}
	var root yamlnode.Node
	if err := yamlnode.Unmarshal(content, &root); err != nil {
		return nil, f.syntax(err)
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" { // nothing but comments
		return f, nil
	}
	top := root.Content[0]
	if top.Kind != yamlnode.MappingNode {
		return nil, fmt.Errorf("%s:%d: keys with values are expected here, like http-addr: 127.0.0.1:8430", path, top.Line)
	}
	// It also refuses mappings that hold themselves, which note could not bear.
	if err := f.values.Load(rawbytes.Provider(content), yaml.Parser()); err != nil {
		return nil, f.syntax(err)
	}
	f.note("", top)
	err = f.check(known)
	return f, err
}

// note remembers the lines of the keys of a mapping.
func (f *file) note(prefix string, mapping *yamlnode.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		f.lines[path] = key.Line
		if value.Kind == yamlnode.AliasNode {
			value = value.Alias
		}
		if value.Kind == yamlnode.MappingNode {
			f.note(path+".", value)
		}
	}
}

// syntax puts the file's name and line in front of the parser's words.
func (f *file) syntax(err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	message = strings.ReplaceAll(strings.TrimPrefix(message, "unmarshal errors:\n  "), "\n ", ";")
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(message); m != nil {
		return fmt.Errorf("%s:%s: %s", f.path, m[1], m[2])
	}
	return fmt.Errorf("%s: %s", f.path, message)
}

// check looks for keys that mean nothing, and for values of another shape than
// their key has.
func (f *file) check(known []string) error {
	var problems []error
	var overrides []string
	for _, s := range (&Stream{}).all() {
		overrides = append(overrides, s.Name)
	}
	for _, key := range f.values.Keys() {
		allowed, name := known, key
		if key == streamsKey {
			if !isEmpty(f.values.Get(key)) {
				problems = append(problems, fmt.Errorf("%s: streams must hold a mapping from names to settings", f.place(key)))
			}
			continue
		}
		if rest, ok := strings.CutPrefix(key, streamsKey+"."); ok {
			stream, override, nested := strings.Cut(rest, ".")
			if err := checkStreamName(stream); err != nil {
				problems = append(problems, fmt.Errorf("%s: streams: %w", f.place(key), err))
				continue
			}
			if !nested {
				problems = append(problems, f.checkStreamShape(key)...)
				continue
			}
			allowed, name = overrides, override
		}
		if !slices.Contains(allowed, name) {
			if allowed = slices.Clone(allowed); len(allowed) == len(known) {
				allowed = append(allowed, streamsKey)
			}
			problems = append(problems, fmt.Errorf("%s: unknown key %s%s", f.place(key), key, config.Choices{Names: allowed, Where: "`brim config print` without a file lists all"}.InsteadOf(name)))
			continue
		}
		switch v := f.values.Get(key).(type) {
		case string, int, int64, uint64, float64, bool:
		case []any:
			if err := f.join(key, name, v); err != nil {
				problems = append(problems, fmt.Errorf("%s: %s %w", f.place(key), key, err))
				f.values.Delete(key)
			}
		default:
			problems = append(problems, fmt.Errorf("%s: %s must have a single value", f.place(key), key))
			f.values.Delete(key) // so that nothing more is said of it
		}
	}
	return errors.Join(problems...)
}

// checkStreamShape refuses a stream that has a value where settings belong. It
// may have none at all.
func (f *file) checkStreamShape(key string) []error {
	if isEmpty(f.values.Get(key)) {
		return nil
	}
	return []error{fmt.Errorf("%s: %s must hold settings, like granularity: 1m", f.place(key), key)}
}

// isEmpty reports whether a key has no value, or a mapping without keys.
func isEmpty(v any) bool {
	mapping, ok := v.(map[string]any)
	return v == nil || ok && len(mapping) == 0
}

// streams lists the names of the streams that the file describes.
func (f *file) streams() []string {
	return f.values.MapKeys(streamsKey)
}

// A MongoDB URI is named in two ways: as it is, and by the file that it is in,
// as secrets are given to containers. What comes from the stronger source wins.
const (
	UriSetting     = "mongo-uri"
	UriFileSetting = "mongo-uri-file"
)

// fitURI settles which of the two counts, and reads the file.
func (c *Config) fitURI() error {
	at := func(name string) effective {
		return c.effective[slices.IndexFunc(c.effective, func(e effective) bool { return e.Name == name })]
	}
	rank := func(e effective) int {
		return slices.Index([]string{fromFlag, FromEnv, FromFile, FromDefault}, e.origin.Source)
	}
	direct, file := at(UriSetting), at(UriFileSetting)
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

// Shown is a setting as it is told to people and programs.
type Shown struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // secrets are masked
	Origin        // its source and place
}

// Described is what the configuration says in effect, with the source of each value.
type Described struct {
	Settings []Shown            `json:"settings"`
	Streams  map[string][]Shown `json:"streams"`
}

// Describe returns the settings in effect; secrets are masked.
func (c *Config) Describe() Described {
	d := Described{Streams: make(map[string][]Shown)}
	for _, e := range c.effective {
		d.Settings = append(d.Settings, e.shown())
	}
	for name, list := range c.streams {
		for _, e := range list {
			d.Streams[name] = append(d.Streams[name], e.shown())
		}
	}
	return d
}

func (e effective) shown() Shown {
	s := Shown{Name: e.path(), Value: e.text, Origin: e.origin}
	if e.secret {
		s.Value = config.MaskURI(e.text)
	}
	return s
}

// Print writes a file that makes the same settings, each with its origin in a
// comment. A value with a masked secret is commented out, since the file would
// not work with it.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
	for _, e := range c.effective {
		c.printSetting(&b, e)
	}
	b.WriteString("streams: # what they do not set is as above\n")
	for _, name := range slices.Sorted(maps.Keys(c.streams)) {
		own := slices.DeleteFunc(slices.Clone(c.streams[name]), func(e effective) bool { return !e.ownOf(name) })
		if len(own) == 0 {
			fmt.Fprintf(&b, "  %s: {}\n", quoteYAML(name))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", quoteYAML(name))
		for _, e := range own {
			fmt.Fprintf(&b, "%-34s # %s\n", "    "+e.Name+": "+quoteYAML(e.text), e.origin)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
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

// quoteYAML writes text so that YAML reads it back as the same text: bare
// where that is safe, quoted otherwise.
func quoteYAML(text string) string {
	if n, err := strconv.Atoi(text); err == nil && strconv.Itoa(n) == text {
		return text // every setting is read as text, whatever YAML takes it for
	}
	out, err := yamlnode.Marshal(text)
	if bare := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(bare, "\n") {
		return bare
	}
	return strconv.Quote(text)
}

// SplitErrors takes joined errors apart; there is one on each line.
func SplitErrors(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

// Names lists the streams.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.streams)) }
