package console

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// journaling returns a daemon's parts when all is well.
func journaling() []Part {
	return []Part{{Name: "daemon", Ready: true}, {Name: "mongodb", Ready: true, Optional: true}}
}

func TestStateNamesThePartsThatAreNotReady(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part  Part
		class doctor.Class
		want  string
	}{
		{Part{Name: "daemon", Ready: true}, doctor.Healthy, "Readings are accepted and stored"},
		{Part{Name: "mqtt barn", Reason: "connecting", Optional: true}, doctor.Degrading, "Readings are accepted into the journal; an MQTT subscription accepts no messages"},
		{Part{Name: "mongodb", Reason: "no reply", Optional: true}, doctor.Degrading, "Readings are accepted into the journal; not all can be stored at present"},
		{Part{Name: "journal", Reason: "the disk is full"}, doctor.Bottleneck, "No readings can be accepted"},
	} {
		d := newDaemon(t, noon)
		console := d.console(t, func(cfg *Config) { cfg.Parts = func() []Part { return []Part{c.part} } })
		_, body := get(t, console, "/console")
		assert.Contains(t, body, `<section class="state `+c.class.String()+`"`)
		assert.Contains(t, body, c.want)
		assert.Contains(t, body, c.part.Reason)
	}
}

// TestStateIsNotHealthyWhileNothingIsStored, even if every part reports that it is
// ready: a MongoDB that hangs keeps its connections.
func TestStateIsNotHealthyWhileNothingIsStored(t *testing.T) {
	t.Parallel()
	healthy := "Readings are accepted and stored"
	for name, c := range map[string]struct {
		pastDue   float64
		up, aside float64
		parts     []Part
		class     doctor.Class
		want      []string
	}{
		"all is well":              {9, 1, 0, journaling(), doctor.Healthy, []string{healthy}},
		"an update is late":        {58, 1, 0, journaling(), doctor.Degrading, []string{"Readings are accepted into the journal; an update is 58 s late"}},
		"MongoDB hangs":            {2, 0, 0, journaling(), doctor.Degrading, []string{"into the journal; MongoDB does not answer", "health of MongoDB"}},
		"MongoDB hangs for long":   {58, 0, 0, journaling(), doctor.Degrading, []string{"an update is 58 s late", "health of MongoDB"}},
		"some are set aside":       {2, 1, 3, journaling(), doctor.Degrading, []string{"not all can be stored at present", "3 buckets cannot be written"}},
		"without a journal":        {58, 1, 0, []Part{{Name: "daemon", Ready: true}}, doctor.Degrading, []string{"Readings are accepted; an update is 58 s late"}},
		"no readings are accepted": {58, 0, 0, []Part{{Name: "journal", Reason: "full"}}, doctor.Bottleneck, []string{"No readings can be accepted", "health of MongoDB"}},
		"MongoDB is known to hang": {58, 1, 0, []Part{{Name: "mongodb", Optional: true, Reason: "away"}}, doctor.Degrading, []string{"an update is 58 s late", "away"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t, noon)
			gauge := func(name string, value float64) {
				g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
				g.Set(value)
				d.registry.MustRegister(g)
			}
			gauge(metricUp, c.up)
			gauge(metricSetAside, c.aside)
			d.pastDue.Set(c.pastDue)
			d.oldest.WithLabelValues("readings").Set(290) // this is normal
			console := d.console(t, func(cfg *Config) { cfg.Parts = func() []Part { return c.parts } })
			console.sample()
			_, body := get(t, console, "/console")
			assert.Contains(t, body, `<section class="state `+c.class.String()+`"`)
			for _, text := range c.want {
				assert.Contains(t, body, text)
			}
		})
	}
}

// TestAgeThatDirectReadersSeeIsShown for one stream, and for all: the age of the stream
// that is furthest behind.
func TestAgeThatDirectReadersSeeIsShown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	d.oldest.WithLabelValues("readings").Set(42)
	d.oldest.WithLabelValues("plant <b>2</b>").Set(90)
	c := d.console(t, nil)
	c.sample()
	for query, want := range map[string]string{"": "90 s", "?stream=readings": "42 s"} {
		_, body := get(t, c, "/console"+query)
		assert.Contains(t, body, `<dt>Lag</dt><dd>`+want+`</dd><dd class="note">age of the oldest reading not in MongoDB yet</dd>`, query)
	}
}

// TestTimeOfTheLastSampleIsShown when figures stop changing.
func TestTimeOfTheLastSampleIsShown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	_, body := get(t, c, "/console")
	assert.NotContains(t, body, `class="at"`)
	d.sleep(time.Second)
	c.sample()
	d.sleep(42 * time.Second)
	_, body = get(t, c, "/console")
	assert.Contains(t, body, ">12:00:01<")
}

func TestRefusingStatusCodes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{
		"http 200": false, "http 399": false, "http 400": true, "http 429": true, "http 503": true,
		"grpc OK": false, "grpc InvalidArgument": true,
	} {
		assert.Equal(t, want, refuses(answer), answer)
	}
}

func TestRatesAreMeansOfFiveSeconds(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	c.sample()
	for i := range 15 {
		rate := 100.0
		if i >= 12 {
			rate = 200
		}
		d.ingested.WithLabelValues("http").Add(rate)
		d.sleep(time.Second)
		c.sample()
	}
	_, body := get(t, c, "/console")
	assert.Contains(t, body, "<dt>Ingested</dt><dd>160/s</dd>")
}

func TestJournalLimitIsShown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricJournalMax})
	limit.Set(3 << 30)
	d.registry.MustRegister(limit)
	d.journal.Set(5 << 20)
	c := d.console(t, nil)
	c.sample()
	_, body := get(t, c, "/console")
	assert.Contains(t, body, `<dt>Journal</dt><dd>5 MiB</dd><dd class="note">kept, of at most 3 GiB</dd>`)
}

// TestRestartsOfMongoDBAreShown for an embedded mongod.
func TestRestartsOfMongoDBAreShown(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, noon)
	c := d.console(t, nil)
	c.sample()
	_, body := get(t, c, "/console")
	assert.NotContains(t, body, "MongoDB restarts")
	restarts := prometheus.NewCounter(prometheus.CounterOpts{Name: metricRestarts})
	d.registry.MustRegister(restarts)
	d.run(c, 2)
	_, body = get(t, c, "/console")
	assert.NotContains(t, body, "Dotted vertical lines")
	restarts.Add(2)
	d.run(c, 2)
	_, body = get(t, c, "/console")
	assert.Contains(t, body, `<th scope="row">MongoDB restarts</th><td class="n">2</td><td class="n">2</td>`)
	assert.Contains(t, body, "Dotted vertical lines")
}
