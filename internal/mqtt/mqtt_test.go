package mqtt

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest/mosquitto"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/sparkplug"
	pb "github.com/brim-telemetry/brim/internal/sparkplug/sparkplugpb"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const patience = 60 * time.Second

// fakeInlet keeps the messages that it accepts.
type fakeInlet struct {
	mu    sync.Mutex
	err   error             // of every call
	wrong map[string]string // codes of messages that are refused, by payload
	large string            // a payload with which a batch is refused
	over  string            // likewise, because its sensor is one too many
	panic string            // a payload on which it panics
	calls int
	keys  []string // of the calls
	taken []ingest.Message
}

func (i *fakeInlet) AppendMessages(_ context.Context, _, key string, messages []ingest.Message) (map[int]*telemetry.Error, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	i.keys = append(i.keys, key)
	if i.err != nil {
		return nil, i.err
	}
	refused := make(map[int]*telemetry.Error)
	var taken []ingest.Message
	for n, m := range messages {
		if i.panic != "" && string(m.Payload) == i.panic {
			panic("a bug")
		}
		if string(m.Payload) == i.large {
			return nil, telemetry.Errorf(telemetry.TooLarge, "record_too_large", "too large")
		}
		if string(m.Payload) == i.over {
			return nil, telemetry.Errorf(telemetry.Quota, access.CodeActiveSensors, "too many sensors")
		}
		if code := i.wrong[string(m.Payload)]; code != "" {
			refused[n] = telemetry.Errorf(telemetry.Invalid, code, "it is wrong")
			continue
		}
		taken = append(taken, m)
	}
	i.taken = append(i.taken, taken...)
	return refused, nil
}

func (i *fakeInlet) refuse(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

func (i *fakeInlet) called() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls
}

// payloads returns what was accepted, sorted.
func (i *fakeInlet) payloads() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := []string{}
	for _, m := range i.taken {
		out = append(out, string(m.Payload))
	}
	slices.Sort(out)
	return out
}

func (i *fakeInlet) await(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() bool { return len(i.payloads()) >= len(want) })
	assert.Equal(t, want, i.payloads())
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, 5*time.Millisecond)
}

func testConfig(t *testing.T, broker *mosquitto.Broker) Config {
	t.Helper()
	folder := t.TempDir()
	return Config{
		Name: "test", URL: broker.URL(), SessionExpiry: time.Hour, Topic: "site/{site}/{sensorId}", Format: ingest.PayloadAuto, QoS: 2, ReceiveMaximum: 100, MaxBytes: 1 << 20,
		Folder: folder, Letters: &ingest.LetterFile{Path: filepath.Join(folder, LettersName)}, Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
}

// start starts a subscriber; stop ends it, at once if it is told so.
func start(t *testing.T, c Config, inlet ingest.Appender) (s *Subscriber, stop func(atOnce bool)) {
	t.Helper()
	c.Registerer = prometheus.NewRegistry()
	s, err := Start(c, inlet)
	require.NoError(t, err)
	var once sync.Once
	stop = func(atOnce bool) {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if atOnce {
				cancel()
			}
			s.Stop(ctx)
			<-s.manager.Done()
		})
	}
	t.Cleanup(func() { stop(false) })
	return s, stop
}

func awaitUp(t *testing.T, s *Subscriber) {
	t.Helper()
	eventually(t, func() bool { return s.Err() == nil })
}

func publisher(t *testing.T, b *mosquitto.Broker) func(topic, payload string, qos int) {
	t.Helper()
	p, err := b.Publisher(t.Context(), "publisher")
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return func(topic, payload string, qos int) {
		t.Helper()
		require.NoError(t, p.Publish(t.Context(), topic, payload, qos))
	}
}

func TestDeliversEachQoS(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	var inlet fakeInlet
	s, stop := start(t, testConfig(t, broker), &inlet)
	awaitUp(t, s)
	publish := publisher(t, broker)
	var want []string
	for n := range 300 { // more than ReceiveMaximum
		publish("site/north/s-1", fmt.Sprint(n), n%3)
		want = append(want, fmt.Sprint(n))
	}
	inlet.await(t, want...)
	assert.Equal(t, "s-1", inlet.taken[0].Sensor)
	stop(false)
	assert.Zero(t, testutil.ToFloat64(s.metrics.unacknowledged))
	assert.EqualValues(t, 300, testutil.ToFloat64(s.metrics.received))
	require.Error(t, s.Err())
}

// What the journal has not taken is not acknowledged: it comes again after a restart. What
// it has taken does not, and nor does what was published meanwhile get lost.
func TestAcknowledgesWhatIsJournaled(t *testing.T) {
	t.Parallel()
	for _, qos := range []int{1, 2} {
		t.Run(fmt.Sprint(qos), func(t *testing.T) {
			t.Parallel()
			broker := mosquitto.Start(t)
			c := testConfig(t, broker)
			var inlet fakeInlet
			s, stop := start(t, c, &inlet)
			awaitUp(t, s)
			publish := publisher(t, broker)
			publish("site/n/s", "taken", qos)
			inlet.await(t, "taken")
			inlet.refuse(telemetry.Errorf(telemetry.Unavailable, "journal_full", "the journal is full"))
			calls := inlet.called()
			publish("site/n/s", "refused", qos)
			eventually(t, func() bool { return inlet.called() > calls+1 }) // it is tried again
			assert.EqualValues(t, 1, testutil.ToFloat64(s.metrics.unacknowledged))
			stop(true)
			publish("site/n/s", "meanwhile", qos)

			var after fakeInlet
			s, _ = start(t, c, &after)
			awaitUp(t, s)
			after.await(t, "refused", "meanwhile")
			publish("site/n/s", "last", qos)
			after.await(t, "refused", "meanwhile", "last")
		})
	}
}

func TestWaitsForTheJournal(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	inlet := fakeInlet{err: telemetry.Errorf(telemetry.Unavailable, "starting", "starting")}
	s, _ := start(t, testConfig(t, broker), &inlet)
	awaitUp(t, s)
	publisher(t, broker)("site/n/s", "1", 1)
	eventually(t, func() bool { return inlet.called() > 1 })
	inlet.refuse(nil)
	inlet.await(t, "1")
	eventually(t, func() bool { return testutil.ToFloat64(s.metrics.unacknowledged) == 0 })
	assert.Positive(t, testutil.ToFloat64(s.metrics.waits.WithLabelValues(ingest.WaitJournal)))
	publisher(t, broker)("site/n/s", "2", 1)
	inlet.await(t, "1", "2")
	keys := slices.Compact(inlet.keys)
	assert.Len(t, keys, 2, "a batch keeps its key")
}

// Messages over a quota stay with the broker beyond ReceiveMaximum, and none is lost. A sensor
// too many does not hold up the others.
func TestHoldsMessagesOverQuota(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	c := testConfig(t, broker)
	c.ReceiveMaximum = 5
	used := telemetry.Errorf(telemetry.Quota, "quota_readings", "the quota is used up")
	used.RetryAfter = time.Millisecond
	inlet := fakeInlet{err: used, over: "new"}
	s, _ := start(t, c, &inlet)
	awaitUp(t, s)
	publish := publisher(t, broker)
	var want []string
	for n := range 20 {
		publish("site/n/s", fmt.Sprint(n), 1+n%2)
		want = append(want, fmt.Sprint(n))
	}
	publish("site/n/s-new", "new", 1)
	eventually(t, func() bool { return testutil.ToFloat64(s.metrics.waits.WithLabelValues(ingest.WaitQuota)) > 2 })
	assert.LessOrEqual(t, testutil.ToFloat64(s.metrics.unacknowledged), 5.0)
	assert.Empty(t, inlet.payloads())
	require.NoError(t, s.Err())
	inlet.refuse(nil)
	inlet.await(t, want...)
	eventually(t, func() bool {
		return testutil.ToFloat64(s.metrics.refused.WithLabelValues(access.CodeActiveSensors)) == 1
	})
	var letters []ingest.Letter
	eventually(t, func() bool { // they are written after they are counted
		all, err := c.Letters.Read()
		letters = all
		return err == nil && len(letters) > 0
	})
	require.Len(t, letters, 1)
	assert.Equal(t, "quota_active_sensors: too many sensors", letters[0].Reason)
}

// An identity that may not send holds its messages, and the subscription says so.
func TestHoldsMessagesOfADeniedIdentity(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	inlet := fakeInlet{err: telemetry.Errorf(telemetry.Unauthenticated, "token_unknown", "there is no such identity")}
	s, _ := start(t, testConfig(t, broker), &inlet)
	awaitUp(t, s)
	publisher(t, broker)("site/n/s", "1", 1)
	eventually(t, func() bool { return s.Err() != nil })
	require.ErrorContains(t, s.Err(), "no messages are accepted: there is no such identity")
	assert.Positive(t, testutil.ToFloat64(s.metrics.waits.WithLabelValues(ingest.WaitAccess)))
	inlet.refuse(nil)
	inlet.await(t, "1")
	awaitUp(t, s)
}

func TestConnectsAgain(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	broker.Kill() // away at the start
	var inlet fakeInlet
	s, _ := start(t, testConfig(t, broker), &inlet)
	eventually(t, func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), "refused") })
	broker.Restart()
	awaitUp(t, s)
	publisher(t, broker)("site/n/s", "1", 1)
	inlet.await(t, "1")
	broker.Kill() // with all that it knew
	eventually(t, func() bool { return s.Err() != nil })
	assert.Zero(t, testutil.ToFloat64(s.metrics.connected))
	broker.Restart()
	awaitUp(t, s)
	publisher(t, broker)("site/n/s", "2", 1)
	inlet.await(t, "1", "2")
	assert.EqualValues(t, 2, testutil.ToFloat64(s.metrics.connects))
}

// A lost connection is noticed while messages wait for the journal, however often it is lost.
func TestNoticesALostConnectionWhileTheJournalIsFull(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	c := testConfig(t, broker)
	c.ReceiveMaximum = 1
	inlet := fakeInlet{err: telemetry.Errorf(telemetry.Unavailable, "journal_full", "the journal is full")}
	s, _ := start(t, c, &inlet)
	awaitUp(t, s)
	publisher(t, broker)("site/n/s", "1", 1)
	for received := 1.0; received < 6; received++ { // two messages wait, and one is tried
		eventually(t, func() bool { return testutil.ToFloat64(s.metrics.received) >= received })
		broker.Stop()
		eventually(t, func() bool { return testutil.ToFloat64(s.metrics.connected) == 0 })
		broker.Restart()
		awaitUp(t, s)
	}
	inlet.refuse(nil)
	eventually(t, func() bool { return testutil.ToFloat64(s.metrics.unacknowledged) == 0 })
	assert.Contains(t, inlet.payloads(), "1")
}

func TestSpeaksOverWebSocket(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	address := broker.AlsoListen("protocol websockets")
	c := testConfig(t, broker)
	c.URL = "ws://" + address + "/mqtt"
	subscribesAt(t, broker, c)
}

// subscribesAt requires that small and large messages arrive.
func subscribesAt(t *testing.T, broker *mosquitto.Broker, c Config) {
	t.Helper()
	var inlet fakeInlet
	s, _ := start(t, c, &inlet)
	awaitUp(t, s)
	large := strings.Repeat("x", 100_000)
	publish := publisher(t, broker)
	publish("site/n/s", "1", 1)
	publish("site/n/s", large, 2)
	inlet.await(t, "1", large)
}

// Over a WebSocket with TLS the broker's certificate is checked, and that of the client shown.
func TestSpeaksOverWebSocketWithTLS(t *testing.T) {
	t.Parallel()
	authority, dir := accesstest.NewAuthority(t, "ours"), t.TempDir()
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	cert, key := authority.Server("127.0.0.1", time.Now().Add(time.Hour)).Write(t, t.TempDir())
	broker := mosquitto.Start(t)
	address := broker.AlsoListen("protocol websockets", "cafile "+ca, "certfile "+cert, "keyfile "+key, "require_certificate true")
	c := testConfig(t, broker)
	c.URL = "wss://" + address + "/mqtt"
	c.CertFile, c.KeyFile = authority.Client("brim").Write(t, dir)
	s, stop := start(t, c, new(fakeInlet))
	eventually(t, func() bool { return strings.Contains(s.Err().Error(), "certificate signed by unknown authority") })
	stop(false)
	c.CAFile = ca
	subscribesAt(t, broker, c)
}

// A URL with TLS for a port without it is named as the cause, and the other way round.
func TestExplainsTheWrongScheme(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t, "ours")
	cert, key := authority.Server("127.0.0.1", time.Now().Add(time.Hour)).Write(t, t.TempDir())
	for scheme, lines := range map[string][]string{"mqtts": nil, "mqtt": {"certfile " + cert, "keyfile " + key}} {
		broker := mosquitto.Start(t, lines...)
		c := testConfig(t, broker)
		c.URL = scheme + "://" + broker.Address
		s, _ := start(t, c, new(fakeInlet))
		eventually(t, func() bool {
			return strings.Contains(s.Err().Error(), "use a URL that begins with") || strings.Contains(s.Err().Error(), "or a URL that begins with")
		})
	}
}

func TestTwoDaemonsShareASubscription(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	var inlets [2]fakeInlet
	for i := range inlets {
		c := testConfig(t, broker)
		c.Group = "brims"
		s, _ := start(t, c, &inlets[i])
		awaitUp(t, s)
	}
	publish := publisher(t, broker)
	var want []string
	for n := range 100 {
		publish("site/n/s", fmt.Sprint(n), 1)
		want = append(want, fmt.Sprint(n))
	}
	both := func() []string { return append(inlets[0].payloads(), inlets[1].payloads()...) }
	eventually(t, func() bool { return len(both()) >= len(want) })
	assert.ElementsMatch(t, want, both())
	assert.NotEmpty(t, inlets[0].payloads())
	assert.NotEmpty(t, inlets[1].payloads())
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	authority := accesstest.NewAuthority(t, "ours")
	dir := t.TempDir()
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	cert, key := authority.Server("127.0.0.1", time.Now().Add(time.Hour)).Write(t, dir)
	require.NoError(t, os.Rename(cert, cert+".server"))
	require.NoError(t, os.Rename(key, key+".server"))
	broker := mosquitto.Start(t, "cafile "+ca, "certfile "+cert+".server", "keyfile "+key+".server", "require_certificate true", "use_identity_as_username true")
	c := testConfig(t, broker)
	c.URL, c.CAFile = "mqtts://"+broker.Address, ca

	var inlet fakeInlet
	s, stop := start(t, c, &inlet)
	eventually(t, func() bool { return strings.Contains(s.Err().Error(), "certificate") })
	stop(false)
	c.CertFile, c.KeyFile = authority.Client("brim").Write(t, dir)
	s, _ = start(t, c, &inlet)
	awaitUp(t, s)
}

func TestPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := accesstest.File(t, dir, "password", []byte("wrong\n"))
	users := accesstest.File(t, dir, "users", []byte("brim:$7$101$wcSqy9Ug9NXlvjRi$W1ySVPUsyU7xIRxzyxjnGkPWSMmM7eJd1bo0NE7hoRdwp1SbHSUyGNFHQTLTyXyRu6WPPfzGCiGBdEgBJBLbOQ==\n"))
	broker := mosquitto.Start(t, "allow_anonymous false", "password_file "+users)
	c := testConfig(t, broker)
	c.User, c.PasswordFile = "brim", file
	s, _ := start(t, c, new(fakeInlet))
	eventually(t, func() bool {
		return strings.Contains(s.Err().Error(), "wrong user or password") || strings.Contains(s.Err().Error(), "not authorized")
	})
	assert.NotContains(t, s.Err().Error(), "wrong\n")
}

// A message that nobody can use is kept with its topic and acknowledged, and those behind
// it go on.
func TestPoison(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	c := testConfig(t, broker)
	inlet := fakeInlet{wrong: map[string]string{"bad": "malformed"}, large: "huge", panic: "bug"}
	s, stop := start(t, c, &inlet)
	awaitUp(t, s)
	publish := publisher(t, broker)
	for _, payload := range []string{"1", "bad", "2", "huge", "bug", "3"} {
		publish("site/n/s", payload, 1)
	}
	inlet.await(t, "1", "2", "3")
	eventually(t, func() bool { return testutil.ToFloat64(s.metrics.unacknowledged) == 0 })
	letters, err := c.Letters.Read()
	require.NoError(t, err)
	kept := make(map[string]string)
	for _, l := range letters {
		assert.Equal(t, "site/n/s", l.Topic)
		assert.Equal(t, "test", l.Subscription)
		kept[string(l.Payload)] = l.Reason
	}
	assert.Equal(t, map[string]string{
		"bad": "malformed: it is wrong", "huge": "message_too_large: record_too_large: too large",
		"bug": "internal: Brim failed on this message, which is a bug; its log says where",
	}, kept)
	assert.EqualValues(t, 1, testutil.ToFloat64(s.metrics.refused.WithLabelValues("malformed")))
	stop(false)

	var after fakeInlet
	s, _ = start(t, c, &after)
	awaitUp(t, s)
	publish("site/n/s", "4", 1)
	after.await(t, "4")
}

// A topic that is no longer subscribed to stays at the broker only until the first start
// with another one.
func TestAnotherTopic(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	c := testConfig(t, broker)
	s, stop := start(t, c, new(fakeInlet))
	awaitUp(t, s)
	stop(false)
	c.Topic = "other/{sensorId}"
	var inlet fakeInlet
	s, _ = start(t, c, &inlet)
	awaitUp(t, s)
	publish := publisher(t, broker)
	publish("site/n/s", "1", 1)
	publish("other/s", "2", 1)
	inlet.await(t, "2")
	assert.EqualValues(t, 1, testutil.ToFloat64(s.metrics.received))
}

// A broker that only speaks MQTT 3.1.1 answers with a CONNACK of its own, or not at all.
func TestOldBroker(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"answers": "\x20\x02\x00\x01", "hangs up": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 1000))
					_, _ = conn.Write([]byte(answer))
					_ = conn.Close()
				}
			})
			t.Cleanup(serving.Wait)
			t.Cleanup(func() { _ = l.Close() })
			c := testConfig(t, &mosquitto.Broker{Address: l.Addr().String()})
			s, _ := start(t, c, new(fakeInlet))
			eventually(t, func() bool { return strings.Contains(s.Err().Error(), "MQTT 5") })
		})
	}
}

// A broker that answers to a subscription without a reason code does not end the daemon.
func TestAnswerWithoutReasonCode(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serve := func(conn net.Conn) {
		defer conn.Close()
		for {
			got, err := packets.ReadPacket(conn)
			if err != nil {
				return
			}
			switch p := got.Content.(type) {
			case *packets.Connect:
				_, _ = conn.Write([]byte{0x20, 3, 0, 0, 0})
			case *packets.Subscribe:
				_, _ = conn.Write([]byte{0x90, 3, byte(p.PacketID >> 8), byte(p.PacketID), 0})
			}
		}
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = l.Close() })
	s, _ := start(t, testConfig(t, &mosquitto.Broker{Address: l.Addr().String()}), new(fakeInlet))
	eventually(t, func() bool { return strings.Contains(s.Err().Error(), "0 reason codes") })
}

// Births survive a restart, and a node whose births are unknown is asked for them.
func TestSparkplugBirths(t *testing.T) {
	t.Parallel()
	broker := mosquitto.Start(t)
	c := testConfig(t, broker)
	c.Topic, c.Format = "spBv1.0/#", Sparkplug
	var inlet fakeInlet
	s, stop := start(t, c, &inlet)
	awaitUp(t, s)
	commands := make(chan string, 10)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", broker.Address)
	require.NoError(t, err)
	node := paho.NewClient(paho.ClientConfig{Conn: conn, OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
		commands <- p.Packet.Topic
		return true, nil
	}}})
	_, err = node.Connect(t.Context(), &paho.Connect{ClientID: "node", CleanStart: true})
	require.NoError(t, err)
	defer func() { _ = node.Disconnect(&paho.Disconnect{}) }()
	_, err = node.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "spBv1.0/plant/NCMD/gw", QoS: 1}}})
	require.NoError(t, err)
	publish := func(kind string, m *pb.Metric) {
		m.Value = &pb.Metric_IntValue{IntValue: 5}
		payload, err := proto.Marshal(&pb.Payload{Timestamp: proto.Uint64(1795251600000), Metrics: []*pb.Metric{m}})
		require.NoError(t, err)
		_, err = node.Publish(t.Context(), &paho.Publish{Topic: "spBv1.0/plant/" + kind + "/gw", QoS: 1, Payload: payload})
		require.NoError(t, err)
	}
	publish("NDATA", &pb.Metric{Alias: proto.Uint64(9)})
	assert.Equal(t, "spBv1.0/plant/NCMD/gw", <-commands)
	publish("NBIRTH", &pb.Metric{Name: proto.String("level"), Alias: proto.Uint64(9), Datatype: proto.Uint32(3)})
	eventually(t, func() bool { return len(inlet.payloads()) == 1 })
	stop(false)
	assert.EqualValues(t, 1, testutil.ToFloat64(s.metrics.refused.WithLabelValues(sparkplug.CodeAlias)))
	publish("NDATA", &pb.Metric{Alias: proto.Uint64(9)})
	var after fakeInlet
	_, _ = start(t, c, &after)
	eventually(t, func() bool { return len(after.payloads()) == 1 })
	assert.Equal(t, []telemetry.Field{{Name: "level", Value: telemetry.IntValue(5)}}, after.taken[0].Readings[0].Fields)
	assert.Equal(t, "plant/gw", after.taken[0].Sensor)
}

func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	secret := accesstest.File(t, t.TempDir(), "empty", nil)
	for want, change := range map[string]func(*Config){
		"it contains a user":          func(c *Config) { c.URL = "mqtt://u:secret@h" },
		"is not the URL of a broker":  func(c *Config) { c.URL = "http://h" },
		"not between 1 and 65535":     func(c *Config) { c.URL = "mqtt://h:99999" },
		"write {sensorId}":            func(c *Config) { c.Topic = "a/{sensor_ID}" },
		"set mqtt-group":              func(c *Config) { c.Topic = "$share/g/a/{sensorId}" },
		"must begin with spBv1.0/":    func(c *Config) { c.Format = Sparkplug },
		"must contain {sensorId}":     func(c *Config) { c.Format, c.Topic = ingest.PayloadNumber, "a/+" },
		"cannot be shared":            func(c *Config) { c.Group, c.Topic = "g", "spBv1.0/#" },
		"contains /, + or #":          func(c *Config) { c.Group = "a/b" },
		"need TLS":                    func(c *Config) { c.CAFile = "x" },
		"belong together":             func(c *Config) { c.CertFile = "x" },
		"needs mqtt-user":             func(c *Config) { c.PasswordFile = secret },
		"does not contain a password": func(c *Config) { c.User, c.PasswordFile = "u", secret },
		"no such file":                func(c *Config) { c.URL, c.CAFile = "mqtts://h", "/nowhere" },
	} {
		c := Config{URL: "mqtt://127.0.0.1:1883", Topic: "a/{sensorId}", Format: ingest.PayloadAuto}
		require.NoError(t, c.Check())
		change(&c)
		err := c.Check()
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
}
