// Package mqtt subscribes to topics of the operator's broker and passes the messages to
// ingest:
//
//	broker ─ receive ─▶ waiting ─ gather ─▶ ingest ─▶ journal
//	  ▲        (at most ReceiveMaximum)        │
//	  └──────── acknowledge, in order ◀────────┘ refused: dead letters
//
// A message of QoS 1 or 2 is acknowledged once its readings are journaled, or once it is
// written to the dead letters. While the journal accepts no readings, nothing is acknowledged,
// and the broker keeps the messages beyond ReceiveMaximum.
//
//	mqtt.go        Subscriber
//	connection.go  TCP and TLS, reason codes of the broker
//	topic.go       topic templates
//	payload.go     detection of payload formats
//	sparkplug.go   Sparkplug B
//	state.go       state kept across restarts
//	deadletter.go  refused messages
package mqtt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An Ingester accepts messages; in the daemon it is an ingest.Server.
type Ingester interface {
	AppendMessages(ctx context.Context, identity, key string, messages []ingest.Message) (map[int]*ingest.MessageError, error)
}

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
	Format         Format
	QoS            int
	Group          string // of a shared subscription; empty: not shared
	ReceiveMaximum int    // largest number of unacknowledged messages
	MaxBytes       int64  // largest size of a message

	Folder  string // of the state file
	Letters *LetterFile

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
	server, err := parseURL(c.URL)
	if err != nil {
		return fmt.Errorf("mqtt-url: %w", err)
	}
	t, err := parseTemplate(c.Topic)
	if err != nil {
		return fmt.Errorf("mqtt-topic: %w", err)
	}
	switch {
	case c.Format == Number && !t.has(nameSensor):
		return errors.New("mqtt-topic: with mqtt-format number the topic must contain {sensorId}, because the payload has no sensor ID")
	case c.Format == Sparkplug && !strings.HasPrefix(t.filter(), sparkplugPrefix):
		return fmt.Errorf("mqtt-topic: with mqtt-format sparkplug the topic must begin with %s, as in %s#", sparkplugPrefix, sparkplugPrefix)
	case c.Group != "" && (c.Format == Sparkplug || strings.HasPrefix(t.filter(), sparkplugPrefix)):
		return errors.New("mqtt-group: Sparkplug B cannot be shared, because a birth would reach only one of the daemons")
	case strings.ContainsAny(c.Group, "/+#"):
		return fmt.Errorf("mqtt-group: %q contains /, + or #", c.Group)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("mqtt-cert and mqtt-key belong together; set both or neither")
	case !schemes[server.Scheme].tls && c.CAFile+c.CertFile != "":
		return errors.New("mqtt-ca and mqtt-cert need TLS; use a URL that begins with mqtts:// or wss://")
	case c.PasswordFile != "" && c.User == "":
		return errors.New("mqtt-password-file needs mqtt-user")
	}
	if _, err := c.password(); err != nil {
		return fmt.Errorf("mqtt-password-file: %w", err)
	}
	_, err = c.tls("")
	return err
}

// A Subscriber is one subscription.
type Subscriber struct {
	config   Config
	server   *url.URL
	template *template
	ingester Ingester
	metrics  *metrics
	log      *slog.Logger

	manager      *autopaho.ConnectionManager
	last         atomic.Pointer[connection]
	downReason   atomic.Pointer[string] // why it is not subscribed; nil: it is
	deniedReason atomic.Pointer[string] // why its identity may not send; nil: it may

	waiting     chan *message
	room        *semaphore.Weighted // bytes of waiting messages
	stopping    context.Context     //nolint:containedctx // ends when Stop is called
	stop        context.CancelFunc
	abandon     context.CancelFunc // stops waiting for the journal
	gatherer    sync.WaitGroup
	subscribing sync.WaitGroup

	// Used by the gatherer only.
	state          state
	births         births
	changed        bool                 // births have unsaved changes
	asked          map[string]time.Time // when each node was asked for its births
	client         *paho.Client         // that received the last message
	warned         time.Time            // when a failure that is retried was last logged
	lastRefusedLog time.Time            // when refused messages were last logged
	unlogged       int                  // refused since then
}

// A message is a received message.
type message struct {
	packet *paho.Publish
	client *paho.Client
	at     time.Time
	bytes  int64
}

const (
	batchMessages = 1000
	batchBytes    = 1 << 20
	// linger is how long a batch waits for more messages, because each batch costs an fsync.
	linger = 4 * time.Millisecond
	// acksEvery is how often acknowledgements are sent.
	acksEvery = 5 * time.Millisecond
	// qos0Timeout is how long a message of QoS 0 waits for room.
	qos0Timeout = time.Second

	minBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second

	keepAlive = 30 // seconds

	// logInterval is how often refused messages are logged.
	logInterval = 10 * time.Second
)

// Start connects in the background, and retries until it succeeds. It returns an error only
// if the configuration or the folder cannot be used.
func Start(c Config, ingester Ingester) (*Subscriber, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	server, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		config: c, server: server, ingester: ingester, metrics: newMetrics(c.Name, c.Registerer),
		log:     c.Logger.With("subscription", c.Name, "broker", server.Host),
		waiting: make(chan *message, 2*c.ReceiveMaximum),
		room:    semaphore.NewWeighted(max(64<<20, 2*c.MaxBytes)),
		asked:   make(map[string]time.Time),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	if s.template, err = parseTemplate(c.Topic); err != nil {
		return nil, err
	}
	if s.state, err = openState(filepath.Join(c.Folder, "mqtt-"+c.Name+".json"), c.ClientID); err != nil {
		return nil, err
	}
	if s.births = maps.Clone(s.state.Births); s.births == nil {
		s.births = make(births)
	}
	s.down("connecting")
	ctx, abandon := context.WithCancel(context.Background())
	s.abandon = abandon
	s.gatherer.Go(func() { s.gather(ctx) })
	if err := s.connect(ctx); err != nil {
		s.stop()
		abandon()
		s.gatherer.Wait()
		return nil, err
	}
	return s, nil
}

// connect starts the client, which reconnects by itself.
func (s *Subscriber) connect(ctx context.Context) error {
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
			p.CleanStart = false
			p.Username, p.UsernameFlag = c.User, c.User != ""
			p.Password, p.PasswordFlag = password, len(password) > 0
			p.Properties = &paho.ConnectProperties{SessionExpiryInterval: &expiry, ReceiveMaximum: &most, MaximumPacketSize: &size}
			return p, nil
		},
		OnConnectionUp: func(m *autopaho.ConnectionManager, ack *paho.Connack) {
			s.metrics.connects.Inc()
			s.subscribing.Go(func() { s.subscribe(ctx, m, ack.SessionPresent) })
		},
		OnConnectionDown: func() bool {
			s.down("the connection was lost")
			return true
		},
		OnConnectError: func(err error) {
			if ctx.Err() == nil {
				s.down(explain(err, s.server, &s.last).Error())
			}
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
	// Not ctx: Stop ends the connection with Disconnect, after the last acknowledgement.
	if s.manager, err = autopaho.NewConnection(context.WithoutCancel(ctx), config); err != nil {
		return fmt.Errorf("set up the MQTT client: %w", err)
	}
	return nil
}

// overhead allows for the topic and the properties of a message, beside its payload.
const overhead = 128 << 10

// subscribe subscribes on a new connection. It retries until it succeeds or the connection is
// lost.
func (s *Subscriber) subscribe(ctx context.Context, m *autopaho.ConnectionManager, present bool) {
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
		if !pauseFor(s.stopping, pause) {
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
	if why := s.deniedReason.Load(); why != nil {
		return fmt.Errorf("no messages are accepted: %s", *why)
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
	m := &message{packet: p.Packet, client: p.Client, at: time.Now(), bytes: int64(len(p.Packet.Payload) + len(p.Packet.Topic))}
	ctx := s.stopping
	if c := s.last.Load(); c != nil {
		ctx = c.open
	}
	if m.packet.QoS == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, qos0Timeout)
		defer cancel()
	}
	if s.queue(ctx, m) {
		s.countUnacknowledged(m, 1)
	} else if m.packet.QoS == 0 && s.stopping.Err() == nil {
		s.metrics.dropped.Inc()
	}
	return true, nil // without an acknowledgement
}

// queue returns false if ctx ended before there was room.
func (s *Subscriber) queue(ctx context.Context, m *message) bool {
	if s.room.Acquire(ctx, m.bytes) != nil {
		return false
	}
	select {
	case s.waiting <- m:
		return true
	case <-ctx.Done():
		s.room.Release(m.bytes)
		return false
	}
}

// countUnacknowledged updates the number of messages to be acknowledged.
func (s *Subscriber) countUnacknowledged(m *message, n float64) {
	if m.packet.QoS > 0 {
		s.metrics.unacknowledged.Add(n)
	}
}

// release gives back the room of a message.
func (s *Subscriber) release(m *message) {
	s.room.Release(m.bytes)
	s.countUnacknowledged(m, -1)
}

// gather processes messages in batches. After stopping is closed, it returns when those that
// were received before are done.
func (s *Subscriber) gather(ctx context.Context) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		var first *message
		select {
		case first = <-s.waiting:
		default:
			select {
			case first = <-s.waiting:
			case <-s.stopping.Done():
				return
			}
		}
		batch, size := []*message{first}, first.bytes
		timer.Reset(linger)
		for more := true; more && len(batch) < batchMessages && size < batchBytes; {
			select {
			case m := <-s.waiting:
				batch, size = append(batch, m), size+m.bytes
			case <-timer.C:
				more = false
			case <-s.stopping.Done():
				more = false
			}
		}
		done := s.process(ctx, batch)
		for _, m := range batch {
			if done && m.packet.QoS > 0 {
				_ = m.client.Ack(m.packet) // fails if the connection was lost; then the broker sends the message again
			}
			s.release(m)
		}
	}
}

// process journals the readings of a batch and writes refused messages to the dead letters.
// It returns false if ctx ended first.
func (s *Subscriber) process(ctx context.Context, batch []*message) bool {
	var letters []Letter
	refused := func(m *message, r *refusal) {
		s.metrics.refused.WithLabelValues(r.reason).Inc()
		letters = append(letters, letterOf(s.config.Name, m, r))
	}
	messages := make([]ingest.Message, 0, len(batch))
	from := make([]*message, 0, len(batch)) // where messages come from
	for _, m := range batch {
		var made *ingest.Message
		var r *refusal
		if err := s.guard(func() error { made, r = s.decode(m); return nil }); err != nil {
			r = &refusal{reasonPanic, err.Error()}
		}
		switch {
		case r != nil:
			refused(m, r)
		case made != nil:
			messages, from = append(messages, *made), append(from, m)
		}
	}
	if !s.append(ctx, messages, from, refused) {
		return false
	}
	ok := true
	if len(letters) > 0 {
		s.logRefused(letters)
		ok = s.retry(ctx, "save refused MQTT messages", func() error { return s.config.Letters.put(letters) })
	}
	return ok && s.retry(ctx, "save the births of Sparkplug nodes", func() error {
		if !s.changed {
			return nil
		}
		err := s.state.update(func(kept *state) { kept.Births = maps.Clone(s.births) })
		s.changed = err != nil
		return err
	})
}

// logRefused logs refused messages, at most once per logInterval.
func (s *Subscriber) logRefused(letters []Letter) {
	s.unlogged += len(letters)
	if time.Since(s.lastRefusedLog) < logInterval {
		return
	}
	s.log.Warn("MQTT messages were refused; see brim deadletter list --messages",
		"messages", s.unlogged, "topic", letters[0].Topic, "reason", letters[0].Reason)
	s.lastRefusedLog, s.unlogged = time.Now(), 0
}

// retry calls do until it succeeds. It returns false if ctx ended first. A failure is logged
// at most once per logInterval: a quota may be used up all the time.
func (s *Subscriber) retry(ctx context.Context, what string, do func() error) bool {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if time.Since(s.warned) >= logInterval {
			s.log.Warn("failed, retrying", "what", what, "err", err)
			s.warned = time.Now()
		}
		until := pause
		var known *telemetry.Error
		if errors.As(err, &known) && known.Kind == telemetry.Quota {
			until = min(known.RetryAfter, maxBackoff)
		}
		if !pauseFor(ctx, until) {
			return false
		}
	}
}

// pauseFor waits. It returns false if ctx ended first.
func pauseFor(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// append passes messages to ingest until they are journaled. It returns false if ctx ended
// first.
func (s *Subscriber) append(ctx context.Context, messages []ingest.Message, from []*message, refused func(*message, *refusal)) bool {
	if len(messages) == 0 {
		return true
	}
	key := rand.Text()
	return s.retry(ctx, "append MQTT messages, which the broker keeps until then", func() error {
		var some map[int]*ingest.MessageError
		err := s.guard(func() (err error) {
			some, err = s.ingester.AppendMessages(ctx, s.config.Identity, key, messages)
			return err
		})
		if err == nil {
			s.deniedReason.Store(nil)
			for i, e := range some {
				text := e.Message
				if e.Refused > 0 {
					text = fmt.Sprintf("%s (refused readings: %d)", e.Message, e.Refused)
				}
				refused(from[i], &refusal{e.Code, text})
			}
			return nil
		}
		reason := s.waitsFor(err)
		switch {
		case ctx.Err() != nil:
			return err
		case reason != "":
			s.metrics.waits.WithLabelValues(reason).Inc()
			return err
		case len(messages) == 1:
			refused(from[0], refusalOf(err))
			return nil
		}
		half := len(messages) / 2 // one of them is the cause
		if s.append(ctx, messages[:half], from[:half], refused) && s.append(ctx, messages[half:], from[half:], refused) {
			return nil
		}
		return ctx.Err()
	})
}

// waitsFor returns what messages that were not accepted wait for; empty if waiting does not
// help.
func (s *Subscriber) waitsFor(err error) string {
	var known *telemetry.Error
	if !errors.As(err, &known) {
		return waitJournal
	}
	switch known.Kind {
	case telemetry.Unavailable, telemetry.UnknownOutcome, telemetry.Internal:
		return waitJournal
	case telemetry.Unauthenticated, telemetry.Forbidden:
		s.deniedReason.Store(&known.Message)
		return waitAccess
	case telemetry.Quota:
		if known.Code != access.CodeActiveSensors { // those of known sensors would wait for up to an hour
			return waitQuota
		}
	}
	return ""
}

// refusalOf returns why a message that cannot be appended is refused.
func refusalOf(err error) *refusal {
	var known *telemetry.Error
	if errors.As(err, &known) && (known.Code == reasonPanic || known.Code == access.CodeActiveSensors) {
		return &refusal{known.Code, known.Message}
	}
	return &refusal{reasonSize, err.Error()}
}

// errPanic says that the code which processes messages panicked.
var errPanic = telemetry.Errorf(telemetry.Invalid, reasonPanic, "Brim failed on this message, which is a bug; its log says where")

// guard turns a panic into an error, so that one message cannot end the daemon.
func (s *Subscriber) guard(do func() error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			s.log.Error("panic while processing MQTT messages", "panic", problem, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return do()
}

// decode finds the format and the series of a message. Both results are nil if it contains
// nothing to store.
func (s *Subscriber) decode(m *message) (*ingest.Message, *refusal) {
	out := &ingest.Message{Payload: m.packet.Payload, Received: m.at, Stream: s.config.Stream, Field: defaultField}
	topic := m.packet.Topic
	s.client = m.client
	if !s.template.match(topic, out) {
		return nil, refuse(reasonTopic, "the topic does not match %s", s.config.Topic)
	}
	format := s.config.Format
	if format == Auto && strings.HasPrefix(topic, sparkplugPrefix) {
		format = Sparkplug
	}
	var r *refusal
	switch format {
	case Sparkplug:
		if r = s.decodeSparkplug(topic, m.packet.Payload, out); r != nil || len(out.Readings) == 0 {
			return nil, r
		}
		return out, nil
	case Number:
		out.Format = ingest.PayloadNumber
	case JSON:
		out.Format = ingest.PayloadJSON
	case Line:
		out.Format = ingest.PayloadLine
	default:
		out.Format, out.Payload, r = formatOf(m.packet.Payload)
	}
	return out, r
}

// publish sends a message of QoS 0 on the connection of the last received message.
func (s *Subscriber) publish(topic string, payload []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	if _, err := s.client.Publish(ctx, &paho.Publish{Topic: topic, Payload: payload}); err != nil {
		s.log.Debug("publish", "topic", topic, "err", err)
	}
}

// Stop stops receiving, journals and acknowledges the messages it has, and disconnects. When
// ctx ends, messages that are not journaled stay with the broker.
func (s *Subscriber) Stop(ctx context.Context) {
	s.stop()
	defer context.AfterFunc(ctx, s.abandon)()
	s.gatherer.Wait()
	pauseFor(ctx, 4*acksEvery) // until the last acknowledgements are sent
	if err := s.manager.Disconnect(ctx); err != nil && !errors.Is(err, io.EOF) {
		s.log.Debug("disconnect", "err", err)
	}
	s.abandon()
	s.subscribing.Wait()
	s.down("stopped")
}
