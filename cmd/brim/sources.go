package main

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

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Where a setting's value can come from, the later ones first.
const (
	fromFlag    = "flag"
	fromEnv     = "environment"
	fromFile    = "file"
	fromDefault = "default"
)

const envPrefix = "BRIM_"

// envConfig names the configuration file, like --config.
const envConfig = envPrefix + "CONFIG"

// envURL names the daemon that `brim query` asks, like --url.
const envURL = envPrefix + "URL"

// envPrometheus was read by `brim doctor --trend`, which is gone. It is ignored,
// so that one that is still set stops no daemon.
const envPrometheus = envPrefix + "PROMETHEUS"

// sources is what a configuration is made from.
type sources struct {
	flags map[string]string // those that were given, by name
	env   []string          // NAME=value
	path  string            // of the file; empty: the one that the environment names, or none
}

// file returns the path of the configuration file, empty if there is none.
func (s sources) file() string { return cmp.Or(s.path, lookupEnv(s.env, envConfig)) }

// An origin says where the value in force came from.
type origin struct {
	Source string `json:"source"`
	Place  string `json:"place,omitempty"` // flag, variable or line
}

func (o origin) String() string {
	if o.Place == "" {
		return o.Source
	}
	return o.Source + " " + o.Place
}

// An effective setting is a value in force.
type effective struct {
	setting
	text   string
	origin origin
	stream string // that sets it for itself; empty at the top level
}

// ownOf reports whether the stream sets the value, and does not inherit it.
func (e effective) ownOf(stream string) bool { return e.stream == stream }

// A layer holds what one source says.
type layer struct {
	source string
	values *koanf.Koanf
	place  func(s setting) string
}

// configuration is the outcome: checked settings, and for people each value's
// text with its origin.
type configuration struct {
	settings
	effective []effective
	streams   map[string][]effective // what each stream sets for itself or inherits
}

// load reads and checks a whole configuration. Every problem that it finds is
// in the error, which is a usageError.
func (s sources) load() (*configuration, error) {
	c := &configuration{streams: make(map[string][]effective)}
	list := c.all()
	layers, f, problems := s.layers(list)
	merged := koanf.New(".")
	for _, l := range slices.Backward(layers) {
		if err := merged.Merge(l.values); err != nil {
			problems = append(problems, fmt.Errorf("merge %s: %w", l.source, err))
		}
	}
	for _, setting := range list {
		e := effective{setting: setting, text: merged.String(setting.path()), origin: originOf(setting, layers)}
		c.effective = append(c.effective, e)
		if err := setting.set(e.text); err != nil {
			problems = append(problems, e.problem(setting.name, err))
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
		return nil, usageError{err}
	}
	return c, nil
}

// fitAck makes stored the default level where there is no journal.
func (c *configuration) fitAck() {
	at := slices.IndexFunc(c.effective, func(e effective) bool { return e.name == "ack" })
	if e := &c.effective[at]; e.origin.Source == fromDefault && !c.journaling() {
		c.Ack, e.text = telemetry.Stored, string(telemetry.Stored)
	}
}

// problem says what is wrong with a value and where it stands.
func (e effective) problem(name string, err error) error {
	switch e.origin.Source {
	case fromFile:
		return fmt.Errorf("%s: %s: %w", e.origin.Place, name, err)
	case fromEnv:
		return fmt.Errorf("%s: %w", e.origin.Place, err)
	default:
		return fmt.Errorf("--%s: %w", name, err)
	}
}

func originOf(s setting, layers []layer) origin {
	for _, l := range layers {
		if l.values.Exists(s.path()) {
			return origin{Source: l.source, Place: l.place(s)}
		}
	}
	return origin{Source: fromDefault}
}

// layers reads all sources, those that win first. What is wrong with one of
// them is among the problems, and the others are still looked at.
func (s sources) layers(list []setting) ([]layer, *file, []error) {
	var problems []error
	defaults, flags := make(map[string]any), make(map[string]any)
	var keys []string
	for _, setting := range list {
		keys = append(keys, setting.path())
		defaults[setting.path()] = setting.initial
		if text, ok := s.flags[setting.name]; ok {
			flags[setting.path()] = text
		}
	}
	variables, path, err := readEnv(s.env, list)
	if err != nil {
		problems = append(problems, err)
	}
	path = cmp.Or(s.path, path)
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
		{fromFlag, fromMap(flags), func(s setting) string { return "--" + s.name }},
		{fromEnv, fromMap(variables), setting.variable},
		{fromFile, f.values, func(s setting) string { return f.place(s.path()) }},
		{fromDefault, fromMap(defaults), func(setting) string { return "" }},
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
func readEnv(env []string, list []setting) (values map[string]any, path string, err error) {
	known := make(map[string]string)
	for _, s := range list {
		known[s.variable()] = s.path()
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
		case name == envURL, name == envPrometheus, slices.Contains(clientVariables(), name), name == envFault && envFault != "", !strings.HasPrefix(name, envPrefix), link.MatchString(name):
		default:
			names := slices.Concat(slices.Sorted(maps.Keys(known)), []string{envConfig, envURL}, clientVariables())
			allowed := choiceOf{names: names, where: "each flag that `brim serve --help` lists has a variable, as BRIM_MONGO_URI is for --mongo-uri"}
			problems = append(problems, fmt.Errorf("unknown variable %s%s", name, allowed.insteadOf(name)))
		}
	}
	return values, path, errors.Join(problems...)
}

// addStreams makes the streams that the file describes, and the default one
// where it does not. What a stream leaves out is as at the top level.
func (c *configuration) addStreams(f *file) []error {
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
			at := slices.IndexFunc(c.effective, func(e effective) bool { return e.name == setting.name })
			e := c.effective[at]
			e.setting = setting
			if key := streamsKey + "." + name + "." + setting.name; f.values.Exists(key) {
				e.text, e.origin, e.stream = f.values.String(key), origin{fromFile, f.place(key)}, name
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
