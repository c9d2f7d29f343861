package mqtt

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/sparkplug"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// reasonTopic is the reason for refusing a message whose topic does not match the template.
// The other reasons are codes of ingest and sparkplug.
const reasonTopic = "topic"

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
	refusals := append(ingest.MessageCodes(), reasonTopic, sparkplug.CodePayload, sparkplug.CodeAlias)
	for _, code := range telemetry.Codes() {
		refusals = append(refusals, string(code))
	}
	return &metrics{
		connected:      gauge("brim_mqtt_connected", "1 if subscribed to the broker, else 0."),
		unacknowledged: gauge("brim_mqtt_unacknowledged", "QoS 1 and 2 messages received and not journaled yet."),
		connects:       counter("brim_mqtt_connects_total", "Connections made to the broker."),
		received:       counter("brim_mqtt_messages_total", "Messages received, including redelivered ones."),
		dropped:        counter("brim_mqtt_dropped_total", "QoS 0 messages dropped because no messages were accepted."),
		waits:          byReason("brim_mqtt_waits_total", "Times that messages were not accepted, by what they wait for: the journal, a quota, or access of the subscription's identity. They are retried.", ingest.WaitJournal, ingest.WaitQuota, ingest.WaitAccess),
		refused:        byReason("brim_mqtt_refused_total", "Messages refused, wholly or in part, by reason. They are kept in a file: brim deadletter list --messages.", refusals...),
		skipped:        byReason("brim_mqtt_sparkplug_skipped_total", "Sparkplug messages and metrics that are not stored, by reason.", sparkplug.Skips()...),
	}
}
