package mqtt

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Reasons for refusing a message, in addition to the codes of refused readings.
const (
	reasonTopic     = "topic"             // it does not match the template
	reasonEmpty     = "empty"             // it has no payload
	reasonNoValue   = "no_value"          // NaN, null and the like
	reasonSparkplug = "sparkplug"         // it is not a Sparkplug B payload, or of an unknown type
	reasonAlias     = "sparkplug_alias"   // no birth defines the alias
	reasonPanic     = "internal"          // processing it panicked
	reasonSize      = "message_too_large" // it does not fit into the journal
)

// What messages wait for that are not accepted.
const (
	waitJournal = "journal"
	waitQuota   = "quota"
	waitAccess  = "access"
)

// A refusal is why a message is refused.
type refusal struct{ reason, text string }

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// Metrics are the metrics of all subscriptions.
type Metrics struct {
	connected, unacknowledged   *prometheus.GaugeVec
	connects, received, dropped *prometheus.CounterVec
	waits, refused, skipped     *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	factory := promauto.With(r)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return factory.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"subscription"})
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"subscription"}, more...))
	}
	return &Metrics{
		connected:      gauge("brim_mqtt_connected", "1 if subscribed to the broker, else 0."),
		unacknowledged: gauge("brim_mqtt_unacknowledged", "QoS 1 and 2 messages received and not journaled yet."),
		connects:       counter("brim_mqtt_connects_total", "Connections made to the broker."),
		received:       counter("brim_mqtt_messages_total", "Messages received, including redelivered ones."),
		dropped:        counter("brim_mqtt_dropped_total", "QoS 0 messages dropped because no messages were accepted."),
		waits:          counter("brim_mqtt_waits_total", "Times that messages were not accepted, by what they wait for: the journal, a quota, or access of the subscription's identity. They are retried.", "reason"),
		refused:        counter("brim_mqtt_refused_total", "Messages refused, wholly or in part, by reason. They are kept in a file: brim deadletter list --messages.", "reason"),
		skipped:        counter("brim_mqtt_sparkplug_skipped_total", "Sparkplug messages and metrics that are not stored, by reason.", "reason"),
	}
}

// of returns the metrics of one subscription.
func (m *Metrics) of(subscription string) *metrics {
	labels := prometheus.Labels{"subscription": subscription}
	of := &metrics{
		connected: m.connected.With(labels), unacknowledged: m.unacknowledged.With(labels),
		connects: m.connects.With(labels), received: m.received.With(labels), dropped: m.dropped.With(labels), waits: make(map[string]prometheus.Counter),
		refused: m.refused.MustCurryWith(labels), skipped: m.skipped.MustCurryWith(labels),
	}
	for _, reason := range []string{waitJournal, waitQuota, waitAccess} {
		of.waits[reason] = m.waits.WithLabelValues(subscription, reason)
	}
	for _, reason := range []string{reasonTopic, reasonEmpty, reasonNoValue, reasonSparkplug, reasonAlias, reasonPanic, reasonSize, access.CodeActiveSensors} {
		of.refused.WithLabelValues(reason)
	}
	for _, code := range ingest.MessageCodes() {
		of.refused.WithLabelValues(code)
	}
	for _, code := range telemetry.Codes() {
		of.refused.WithLabelValues(string(code))
	}
	for _, reason := range []string{"state", "death", "command", "null", "range", "not_finite", "type", "name"} {
		of.skipped.WithLabelValues(reason)
	}
	return of
}

type metrics struct {
	connected, unacknowledged   prometheus.Gauge
	connects, received, dropped prometheus.Counter
	waits                       map[string]prometheus.Counter // by reason
	refused, skipped            *prometheus.CounterVec
}
