// Package mqtt subscribes to topics of the operator's broker and passes the messages to
// ingest:
//
//	broker ─ receive ─▶ ingest.Feed ─▶ journal
//	  ▲   (at most ReceiveMaximum)  │
//	  └── acknowledge, in order ◀───┘ refused: dead letters
//
// A message of QoS 1 or 2 is acknowledged once its readings are journaled, or once it is
// written to the dead letters. While the journal accepts no readings, nothing is acknowledged,
// and the broker keeps the messages beyond ReceiveMaximum.
//
//	mqtt.go        Subscriber
//	connection.go  TCP and TLS, reason codes of the broker
//	topic.go       topic templates
//	state.go       state kept across restarts
package mqtt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/sparkplug"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sparkplug is a format beside those of ingest. With ingest.PayloadAuto, Sparkplug B is
// recognized by its topics.
const Sparkplug ingest.PayloadFormat = "sparkplug"

// defaultField is the field name of a single value if the topic has none.
const defaultField = "value"

// Config configures a Subscriber.
type Config struct {
	Name string // of the subscription

	URL                       string // see schemes
	User, PasswordFile        string
	CAFile, CertFile, KeyFile string // for TLS
	ClientID                  string // empty: a random one, kept in Folder
	SessionExpiry             time.Duration

	Topic          string // a template
	Stream         string // for readings if the topic has no stream; empty: the default stream
	Identity       string // in the access file, whose rights and quotas apply; empty: none
	Format         ingest.PayloadFormat
	QoS            int
	Group          string // of a shared subscription; empty: not shared
	ReceiveMaximum int    // largest number of unacknowledged messages
	MaxBytes       int64  // largest size of a message

	Folder  string // of the state file
	Letters *ingest.LetterFile

	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// schemes are what a URL may begin with.
var schemes = map[string]struct {
	port           string // if the URL has none
	tls, webSocket bool
	other          string // the scheme with TLS for one without, and the other way round
}{
	"mqtt":  {port: "1883", other: "mqtts"},
	"mqtts": {port: "8883", tls: true, other: "mqtt"},
	"ws":    {port: "80", webSocket: true, other: "wss"},
	"wss":   {port: "443", tls: true, webSocket: true, other: "ws"},
}

const allowedURLs = "allowed: mqtt://HOST:PORT, mqtts://HOST:PORT, ws://HOST:PORT/PATH and wss://HOST:PORT/PATH"

// CheckURL checks a URL. Its errors never show a user or password.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it is not a URL; " + allowedURLs)
	}
	over, known := schemes[u.Scheme]
	switch {
	case u.User != nil:
		return nil, errors.New("it contains a user; set mqtt-user and mqtt-password-file instead")
	case !known || u.Hostname() == "" || !over.webSocket && strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		// The text is not shown: it may be USER:PASSWORD@HOST without a scheme.
		return nil, errors.New("it is not the URL of a broker; " + allowedURLs)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), over.port)
	} else if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("its port %s is not between 1 and 65535", u.Port())
	}
	return u, nil
}

// CheckTopic checks a topic template.
func CheckTopic(text string) error {
	_, err := parseTemplate(text)
	return err
}

// Check checks the settings against each other, and reads the files that they name.
func (c *Config) Check() error {
	_, _, err := c.parse()
	return err
}

func (c *Config) parse() (server *url.URL, t *template, err error) {
	if server, err = parseURL(c.URL); err != nil {
		return nil, nil, fmt.Errorf("mqtt-url: %w", err)
	}
	if t, err = parseTemplate(c.Topic); err != nil {
		return nil, nil, fmt.Errorf("mqtt-topic: %w", err)
	}
	switch {
	case c.Format == ingest.PayloadNumber && !t.has(nameSensor):
		err = errors.New("mqtt-topic: with mqtt-format number the topic must contain {sensorId}, because the payload has no sensor ID")
	case c.Format == Sparkplug && !strings.HasPrefix(t.filter(), sparkplug.Prefix):
		err = fmt.Errorf("mqtt-topic: with mqtt-format sparkplug the topic must begin with %s, as in %s#", sparkplug.Prefix, sparkplug.Prefix)
	case c.Group != "" && (c.Format == Sparkplug || strings.HasPrefix(t.filter(), sparkplug.Prefix)):
		err = errors.New("mqtt-group: Sparkplug B cannot be shared, because a birth would reach only one of the daemons")
	case strings.ContainsAny(c.Group, "/+#"):
		err = fmt.Errorf("mqtt-group: %q contains /, + or #", c.Group)
	case (c.CertFile == "") != (c.KeyFile == ""):
		err = errors.New("mqtt-cert and mqtt-key belong together; set both or neither")
	case !schemes[server.Scheme].tls && c.CAFile+c.CertFile != "":
		err = errors.New("mqtt-ca and mqtt-cert need TLS; use a URL that begins with mqtts:// or wss://")
	case c.PasswordFile != "" && c.User == "":
		err = errors.New("mqtt-password-file needs mqtt-user")
	}
	if err != nil {
		return nil, nil, err
	}
	if _, err := c.password(); err != nil {
		return nil, nil, fmt.Errorf("mqtt-password-file: %w", err)
	}
	_, err = c.tls("")
	return server, t, err
}

// A Subscriber is one subscription.
type Subscriber struct {
	config    Config
	server    *url.URL
	template  *template
	feed      *ingest.Feed
	sparkplug *sparkplug.Decoder // used by the feed
	state     state
	metrics   *metrics
	log       *slog.Logger

	manager     *autopaho.ConnectionManager
	last        atomic.Pointer[connection]
	client      atomic.Pointer[paho.Client] // that received the last message
	downReason  atomic.Pointer[string]      // why it is not subscribed; nil: it is
	stopping    context.Context             //nolint:containedctx // ends when Stop is called
	stop        context.CancelFunc
	subscribing sync.WaitGroup
}

const (
	// acksEvery is how often acknowledgements are sent.
	acksEvery = 5 * time.Millisecond
	// qos0Timeout is how long a message of QoS 0 waits for room.
	qos0Timeout = time.Second

	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second

	keepAlive = 30 // seconds
)

// LettersName is the name of the file of refused messages in the data folder.
const LettersName = "mqtt-dead-letters.ndjson"

// Start connects in the background, and retries until it succeeds. It returns an error only
// if the configuration or the folder cannot be used.
func Start(c Config, to ingest.Appender) (*Subscriber, error) {
	server, t, err := c.parse()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		config: c, server: server, template: t, metrics: newMetrics(c.Name, c.Registerer),
		log: c.Logger.With("subscription", c.Name, "broker", server.Host),
	}
	if s.state, err = openState(filepath.Join(c.Folder, "mqtt-"+c.Name+".json"), c.ClientID); err != nil {
		return nil, err
	}
	s.sparkplug = &sparkplug.Decoder{
		Births: maps.Clone(s.state.Births), Publish: s.publish,
		Skip: func(reason string) { s.metrics.skipped.WithLabelValues(reason).Inc() },
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.down("connecting")
	s.feed = ingest.NewFeed(ingest.FeedConfig{
		Name: c.Name, Identity: c.Identity, Messages: 2 * c.ReceiveMaximum, Bytes: max(64<<20, 2*c.MaxBytes), Decode: s.decode, Save: s.saveBirths,
		Letters: c.Letters, Refused: s.metrics.refused, Waits: s.metrics.waits, Logger: s.log,
	}, to)
	if err := s.connect(); err != nil {
		s.stop()
		s.feed.Stop(s.stopping)
		return nil, err
	}
	return s, nil
}

// connect starts the client, which reconnects by itself.
func (s *Subscriber) connect() error {
	c := &s.config
	config := autopaho.ClientConfig{
		ServerUrls: []*url.URL{s.server}, KeepAlive: keepAlive, ConnectTimeout: dialTime,
		ReconnectBackoff: func(attempt int) time.Duration {
			if attempt == 0 {
				return 0
			}
			return min(maxBackoff, minBackoff<<min(attempt, 10))
		},
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, u *url.URL) (net.Conn, error) {
			s.last.Store(nil)
			conn, err := c.open(ctx, u)
			if err != nil {
				return nil, err
			}
			made := newConnection(s.stopping, conn)
			s.last.Store(made)
			return made, nil
		},
		ConnectPacketBuilder: func(p *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			password, err := c.password()
			if err != nil {
				return nil, err
			}
			expiry, most, size := uint32(c.SessionExpiry/time.Second), uint16(c.ReceiveMaximum), uint32(c.MaxBytes+overhead)
			p.Username, p.UsernameFlag = c.User, c.User != ""
			p.Password, p.PasswordFlag = password, len(password) > 0
			p.Properties = &paho.ConnectProperties{SessionExpiryInterval: &expiry, ReceiveMaximum: &most, MaximumPacketSize: &size}
			return p, nil
		},
		OnConnectionUp: func(m *autopaho.ConnectionManager, ack *paho.Connack) {
			s.metrics.connects.Inc()
			s.subscribing.Go(func() { s.subscribe(m, ack.SessionPresent) })
		},
		OnConnectionDown: func() bool {
			s.down("the connection was lost")
			return true
		},
		OnConnectError: func(err error) {
			s.down(explain(err, s.server, &s.last).Error())
		},
		ClientConfig: paho.ClientConfig{
			ClientID: s.state.ClientID, EnableManualAcknowledgment: true, SendAcksInterval: acksEvery,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){s.receive},
			OnServerDisconnect: func(d *paho.Disconnect) {
				s.down("the broker ended the connection: " + meaning(d.ReasonCode))
			},
		},
	}
	var err error
	// Stop ends the connection with Disconnect, after the last acknowledgement.
	if s.manager, err = autopaho.NewConnection(context.Background(), config); err != nil {
		return fmt.Errorf("set up the MQTT client: %w", err)
	}
	return nil
}

// overhead allows for the topic and the properties of a message, beside its payload.
const overhead = 128 << 10

// subscribe subscribes on a new connection. It retries until it succeeds or the connection is
// lost.
func (s *Subscriber) subscribe(m *autopaho.ConnectionManager, present bool) {
	ctx := s.stopping
	filter := s.template.filter()
	if s.config.Group != "" {
		filter = "$share/" + s.config.Group + "/" + filter
	}
	for pause := time.Second; ; pause = min(2*pause, maxBackoff) {
		// Retained messages are old values, and would get the time at which they are received.
		answer, err := m.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{
			{Topic: filter, QoS: byte(s.config.QoS), RetainHandling: 2},
		}})
		switch {
		case err == nil && len(answer.Reasons) != 1:
			err = fmt.Errorf("its answer has %d reason codes; there must be one", len(answer.Reasons))
		case err == nil:
			if granted := answer.Reasons[0]; int(granted) < s.config.QoS {
				s.log.Warn("the broker granted a lower QoS than mqtt-qos", "qos", granted)
			}
			s.unsubscribeOld(ctx, m, filter)
			s.up(filter, present)
			return
		case errors.Is(err, autopaho.ConnectionDownError), errors.Is(err, paho.ErrConnectionLost), ctx.Err() != nil:
			return
		case answer != nil && len(answer.Reasons) == 1:
			err = errors.New(meaning(answer.Reasons[0]))
		}
		s.down(fmt.Sprintf("the broker refused to subscribe to %s: %v", filter, err))
		if machine.Pause(ctx, pause) != nil {
			return
		}
	}
}

// unsubscribeOld ends the subscription of an earlier configuration.
func (s *Subscriber) unsubscribeOld(ctx context.Context, m *autopaho.ConnectionManager, filter string) {
	s.state.mu.Lock()
	old := s.state.Filter
	s.state.mu.Unlock()
	if old == filter {
		return
	}
	if old != "" {
		if _, err := m.Unsubscribe(ctx, &paho.Unsubscribe{Topics: []string{old}}); err != nil {
			s.log.Warn("cannot unsubscribe from an earlier topic", "topic", old, "err", err)
			return
		}
	}
	if err := s.state.update(func(kept *state) { kept.Filter = filter }); err != nil {
		s.log.Warn("cannot save the subscribed topic", "err", err)
	}
}

func (s *Subscriber) up(filter string, present bool) {
	s.downReason.Store(nil)
	s.metrics.connected.Set(1)
	s.log.Info("subscribed to the MQTT broker", "topic", filter, "qos", s.config.QoS, "client_id", s.state.ClientID, "session_resumed", present)
}

// down records why there is no subscription, and logs the reason if it is new.
func (s *Subscriber) down(why string) {
	s.metrics.connected.Set(0)
	if before := s.downReason.Swap(&why); before != nil && *before == why || s.stopping.Err() != nil {
		return
	}
	level := slog.LevelWarn
	if why == "connecting" {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "not subscribed to the MQTT broker", "why", why)
}

// Err returns why there is no subscription now, or why no messages are accepted; or nil.
func (s *Subscriber) Err() error {
	if why := s.downReason.Load(); why != nil {
		return fmt.Errorf("not subscribed at %s: %s", s.server.Host, *why)
	}
	if denied := s.feed.Denied(); denied != nil {
		return fmt.Errorf("no messages are accepted: %s", denied.Message)
	}
	return nil
}

// Name returns the name of the subscription.
func (s *Subscriber) Name() string { return s.config.Name }

// receive queues a message from the client, in order of arrival, once there is room for it.
// For QoS 1 and 2, the broker sends at most ReceiveMaximum unacknowledged ones. A message is
// given up when the connection ends: the broker sends it again, unless it is of QoS 0.
func (s *Subscriber) receive(p paho.PublishReceived) (bool, error) {
	s.metrics.received.Inc()
	s.client.Store(p.Client)
	d := &ingest.Delivery{Topic: p.Packet.Topic, Payload: p.Packet.Payload, Received: time.Now()}
	ctx := s.stopping
	if c := s.last.Load(); c != nil {
		ctx = c.open
	}
	if p.Packet.QoS == 0 {
		ctx, cancel := context.WithTimeout(ctx, qos0Timeout)
		defer cancel()
		if !s.feed.Put(ctx, d) && s.stopping.Err() == nil {
			s.metrics.dropped.Inc()
		}
		return true, nil
	}
	d.Done = func(ok bool) {
		if ok {
			_ = p.Client.Ack(p.Packet) // fails if the connection was lost; then the broker sends the message again
		}
		s.metrics.unacknowledged.Dec()
	}
	if s.feed.Put(ctx, d) {
		s.metrics.unacknowledged.Inc()
	}
	return true, nil // without an acknowledgement
}

// decode finds the series of a message. Both results are nil if it contains nothing to store.
func (s *Subscriber) decode(d *ingest.Delivery) (*ingest.Message, error) {
	format := s.config.Format
	out := &ingest.Message{Payload: d.Payload, Format: format, Received: d.Received, Stream: s.config.Stream, Field: defaultField}
	if !s.template.match(d.Topic, out) {
		return nil, telemetry.Errorf(telemetry.Invalid, reasonTopic, "the topic does not match %s", s.config.Topic)
	}
	if format != Sparkplug && (format != ingest.PayloadAuto || !strings.HasPrefix(d.Topic, sparkplug.Prefix)) {
		return out, nil
	}
	m, err := s.sparkplug.Decode(d.Topic, d.Payload)
	if err != nil || len(m.Readings) == 0 {
		return nil, err
	}
	out.Sensor, out.Tags, out.Readings = m.Sensor, m.Tags, m.Readings
	return out, nil
}

// publish sends a message of QoS 0 on the connection of the last received message.
func (s *Subscriber) publish(topic string, payload []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	if _, err := s.client.Load().Publish(ctx, &paho.Publish{Topic: topic, Payload: payload}); err != nil {
		s.log.Debug("publish", "topic", topic, "err", err)
	}
}

// saveBirths saves the births of Sparkplug nodes if they have changed.
func (s *Subscriber) saveBirths() error {
	if !s.sparkplug.Changed {
		return nil
	}
	err := s.state.update(func(kept *state) { kept.Births = maps.Clone(s.sparkplug.Births) })
	s.sparkplug.Changed = err != nil
	return err
}

// Stop stops receiving, journals and acknowledges the messages it has, and disconnects. When
// ctx ends, messages that are not journaled stay with the broker.
func (s *Subscriber) Stop(ctx context.Context) {
	s.stop()
	s.feed.Stop(ctx)
	_ = machine.Pause(ctx, 4*acksEvery) // until the last acknowledgements are sent
	if err := s.manager.Disconnect(ctx); err != nil && !errors.Is(err, io.EOF) {
		s.log.Debug("disconnect", "err", err)
	}
	s.subscribing.Wait()
	s.down("stopped")
}
