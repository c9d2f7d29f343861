package scrape

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WithNative gives a histogram native ranges beside its classic buckets, which
// every Prometheus can read: 10 % wide at most, so that a quantile is right to
// that, and twice as wide whenever there would be more than 160, which bounds
// what a label costs.
func WithNative(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor = 1.1
	o.NativeHistogramMaxBucketNumber = 160
	o.NativeHistogramMinResetDuration = time.Hour
	return o
}
