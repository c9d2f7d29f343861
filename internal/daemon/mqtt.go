package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/mqtt"
)

// mqttKey is the key of the subscriptions in a configuration file. Their settings have the
// names of the flags without mqttPrefix.
const (
	mqttKey    = "mqtt"
	mqttPrefix = mqttKey + "-"
)

// topSubscription is the name of the subscription that is configured by flags.
const topSubscription = "default"

// Subscription has the settings of one subscription to an MQTT broker.
type Subscription struct{ mqtt.Config }

// all lists the settings of a subscription. At the top level they are the defaults.
func (s *Subscription) all() []Setting {
	return []Setting{
		{
			Name: "mqtt-url", Kind: "URL", set: config.Text(&s.URL, ifGiven(mqtt.CheckURL)),
			Usage: "MQTT broker to subscribe to, mqtt://, mqtts://, ws:// or wss://HOST:PORT, which must speak MQTT 5; empty: none. A file may list several in mqtt",
		},
		{
			Name: "mqtt-topic", Kind: "TEMPLATE", set: config.Text(&s.Topic, ifGiven(mqtt.CheckTopic)),
			Usage: "topics to subscribe to, as in site/{site}/{sensorId}/{field}: {sensorId}, {stream} and {field} determine those of the readings, other names are tags, + matches any level and # all remaining levels",
		},
		{
			Name: "mqtt-format", Kind: "FORMAT", Initial: string(ingest.PayloadAuto), set: config.Choice(&s.Format, ingest.PayloadAuto, ingest.PayloadNumber, ingest.PayloadJSON, ingest.PayloadLine, mqtt.Sparkplug),
			Usage: "payload format: number, json, line, sparkplug, or auto, which detects it for each message",
		},
		{Name: "mqtt-stream", Kind: "NAME", set: config.Text(&s.Stream, ifGiven(checkStreamName)), Usage: "stream for readings if the topic has none; empty: the default stream"},
		{
			Name: "mqtt-identity", Kind: "NAME", set: config.Text(&s.Identity, nil),
			Usage: "identity of the access file whose sensor prefix and quotas apply to the messages, and which needs the scope ingest; empty: none, the broker decides who may publish",
		},
		{Name: "mqtt-qos", Kind: "N", Initial: "1", set: config.Count(&s.QoS, 0, 2), Usage: "highest QoS at which the broker delivers; 0: messages may be lost"},
		{Name: "mqtt-group", Kind: "NAME", set: config.Text(&s.Group, nil), Usage: "share group: the broker divides the messages among the daemons that subscribe with the same group; empty: not shared"},
		{Name: "mqtt-user", Kind: "NAME", set: config.Text(&s.User, nil), Usage: "user name at the broker"},
		{Name: "mqtt-password-file", Kind: "FILE", set: config.Text(&s.PasswordFile, nil), Usage: "file with the password, read on every connect"},
		{Name: "mqtt-ca", Kind: "FILE", set: config.Text(&s.CAFile, nil), Usage: "CA certificates in PEM to verify the broker's certificate; empty: the system's"},
		{Name: "mqtt-cert", Kind: "FILE", set: config.Text(&s.CertFile, nil), Usage: "client certificate in PEM, read on every connect"},
		{Name: "mqtt-key", Kind: "FILE", set: config.Text(&s.KeyFile, nil), Usage: "private key of --mqtt-cert in PEM"},
		{Name: "mqtt-client-id", Kind: "ID", set: config.Text(&s.ClientID, nil), Usage: "client ID, which identifies the session at the broker; empty: a random one, generated once and kept in --data-dir"},
		{
			Name: "mqtt-session-expiry", Kind: "DURATION", Initial: "7d", set: config.Duration(&s.SessionExpiry, time.Second, 365*config.Day, false),
			Usage: "how long the broker keeps the session and its messages while the daemon is disconnected",
		},
		{
			// The MQTT client's search for an unacknowledged message takes linear time.
			Name: "mqtt-receive-maximum", Kind: "N", Initial: "1000", set: config.Count(&s.ReceiveMaximum, 1, 10_000),
			Usage: "how many QoS 1 and 2 messages the broker sends before it waits for an acknowledgement, 1 to 10000",
		},
	}
}

// ifGiven applies a check to values that are not empty.
func ifGiven(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// addSubscriptions adds the subscriptions of the file, or if there are none, the one of the top
// level.
func (c *Config) addSubscriptions(f file) (problems []error) {
	names := f.groups[mqttKey]
	if len(names) == 0 && c.MQTT.URL+c.MQTT.Topic != "" {
		names = append(names, topSubscription)
	}
	slices.Sort(names)
	for _, name := range names {
		s := c.MQTT // by value
		s.Name = name
		problems = append(problems, c.addGroup(f, mqttKey+"."+name, s.all())...)
		c.Subscriptions = append(c.Subscriptions, s)
	}
	return problems
}

// checkSubscriptions checks each subscription, and reads the files that it names.
func (c *Settings) checkSubscriptions() error {
	ids := make(map[string]string)
	for _, s := range c.Subscriptions {
		where := ""
		if s.Name != topSubscription {
			where = mqttKey + "." + s.Name + ": "
		}
		if s.URL == "" || s.Topic == "" {
			return fmt.Errorf("%smqtt-url and mqtt-topic belong together; give both", where)
		}
		err := s.Check()
		if s.Identity != "" && c.AccessFile == "" {
			err = errors.New("mqtt-identity: it needs an access file (access-file)")
		}
		if s.Stream != "" && !slices.ContainsFunc(c.Streams, func(o Stream) bool { return o.Name == s.Stream }) {
			err = fmt.Errorf("mqtt-stream: there is no stream %s", s.Stream)
		}
		if err != nil {
			return s.problem(where, err)
		}
		if other, taken := ids[s.URL+" "+s.ClientID]; taken && s.ClientID != "" {
			return fmt.Errorf("%smqtt-client-id %s is also used by %s; each subscription to a broker needs its own", where, s.ClientID, other)
		}
		ids[s.URL+" "+s.ClientID] = s.Name
	}
	return nil
}

// problem returns an error that names the setting like other errors: --mqtt-topic, or
// mqtt.NAME.topic.
func (s *Subscription) problem(where string, err error) error {
	name, rest, found := strings.Cut(err.Error(), ": ")
	switch {
	case !found || !strings.HasPrefix(name, mqttPrefix) || strings.Contains(name, " "):
		return fmt.Errorf("%s%w", where, err)
	case where == "":
		return fmt.Errorf("--%w", err)
	}
	return fmt.Errorf("%s.%s.%s: %s", mqttKey, s.Name, strings.TrimPrefix(name, mqttPrefix), rest)
}

// heldBytes bounds the memory of received messages of a subscription.
const heldBytes = 512 << 20

// subscribe starts the subscriptions.
func (d *daemon) subscribe() error {
	if len(d.cfg.Subscriptions) == 0 {
		return nil
	}
	letters := &ingest.LetterFile{Path: filepath.Join(d.cfg.DataDir, mqtt.LettersName)}
	var all []*mqtt.Subscriber
	var problems []error
	for _, s := range d.cfg.Subscriptions {
		c := s.Config
		c.Folder, c.Letters, c.Registerer, c.Logger = d.cfg.DataDir, letters, d.registry, d.log
		// The MQTT client may hold ReceiveMaximum messages in memory.
		c.MaxBytes = min(d.cfg.MaxBodyBytes, heldBytes/int64(s.ReceiveMaximum))
		one, err := mqtt.Start(c, d.ingest)
		if err != nil {
			problems = append(problems, fmt.Errorf("start MQTT subscription %s: %w", s.Name, err))
			continue
		}
		all = append(all, one)
	}
	d.subscribers.Store(&all)
	return errors.Join(problems...)
}

// unsubscribe ends the subscriptions once the messages they have received are journaled.
func (d *daemon) unsubscribe(ctx context.Context) {
	all := d.subscribers.Load()
	if all == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(requestsPart*float64(d.current().StopTimeout)))
	defer cancel()
	var stopping sync.WaitGroup
	for _, s := range *all {
		stopping.Go(func() { s.Stop(ctx) })
	}
	stopping.Wait()
}

// mqttParts returns the subscriptions as parts of the daemon. They are optional, because the
// daemon accepts readings over HTTP and gRPC without them.
func (d *daemon) mqttParts() []console.Part {
	all := d.subscribers.Load()
	if all == nil {
		return nil
	}
	var parts []console.Part
	for _, s := range *all {
		p := part("mqtt "+s.Name(), s.Err())
		p.Optional = true
		parts = append(parts, p)
	}
	return parts
}
