package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

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
