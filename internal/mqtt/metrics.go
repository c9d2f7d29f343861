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

// metrics are those of one subscription.
type metrics struct {
	connected, unacknowledged   prometheus.Gauge
	connects, received, dropped prometheus.Counter
	waits, refused, skipped     *prometheus.CounterVec // by reason
}

// newMetrics registers the metrics of a subscription.
func newMetrics(subscription string, r prometheus.Registerer) *metrics {
	factory := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"subscription": subscription}, r))
	gauge := func(name, help string) prometheus.Gauge {
		return factory.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	byReason := func(name, help string, reasons ...string) *prometheus.CounterVec {
		v := factory.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
		for _, reason := range reasons {
			v.WithLabelValues(reason)
		}
		return v
	}
	refusals := append(ingest.MessageCodes(), reasonTopic, reasonEmpty, reasonNoValue, reasonSparkplug, reasonAlias, reasonPanic, reasonSize, access.CodeActiveSensors)
	for _, code := range telemetry.Codes() {
		refusals = append(refusals, string(code))
	}
	return &metrics{
		connected:      gauge("brim_mqtt_connected", "1 if subscribed to the broker, else 0."),
		unacknowledged: gauge("brim_mqtt_unacknowledged", "QoS 1 and 2 messages received and not journaled yet."),
		connects:       counter("brim_mqtt_connects_total", "Connections made to the broker."),
		received:       counter("brim_mqtt_messages_total", "Messages received, including redelivered ones."),
		dropped:        counter("brim_mqtt_dropped_total", "QoS 0 messages dropped because no messages were accepted."),
		waits:          byReason("brim_mqtt_waits_total", "Times that messages were not accepted, by what they wait for: the journal, a quota, or access of the subscription's identity. They are retried.", waitJournal, waitQuota, waitAccess),
		refused:        byReason("brim_mqtt_refused_total", "Messages refused, wholly or in part, by reason. They are kept in a file: brim deadletter list --messages.", refusals...),
		skipped:        byReason("brim_mqtt_sparkplug_skipped_total", "Sparkplug messages and metrics that are not stored, by reason.", "state", "death", "command", "null", "range", "not_finite", "type", "name"),
	}
}
