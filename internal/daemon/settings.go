package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/queue"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/claim"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Settings are the checked settings of `brim serve`.
type Settings struct {
	MongoURI     string // given directly or in a file
	MongoURIFile string // empty: not given in a file
	Database     string
	DataDir      string

	MongodBin       string
	MongodCache     string
	MongodPort      int
	MongodCacheSize int64 // bytes; 0: mongod's choice
	MongodAuth      OnOff

	HTTPAddr, GRPCAddr, AdminAddr string
	AdvertiseAddr                 string // empty: other daemons cannot ask this one
	TLSCert, TLSKey, TLSClientCA  string // files; empty: without
	TLSPeerCA                     string // file; empty: the system's authorities
	TLSRequireClientCert          OnOff
	AllowUnauthenticated          OnOff

	MaxConnections           int // of each listener for readings
	MaxConnectionsPerAddress int // 0: most of them

	AccessFile string // empty: no authentication
	Quota      access.Quota

	Default Stream   // its Name is --stream
	Streams []Stream // including the default one, sorted by name

	MQTT          Subscription   // the defaults of subscriptions
	Subscriptions []Subscription // sorted by name

	Journal           OnOff
	JournalDir        string // empty: in DataDir
	JournalMaxBytes   int64
	JournalCorruption corruptionPolicy
	IdempotencyWindow time.Duration
	IdempotencyKeys   int

	Ack           telemetry.Ack
	StoredTimeout time.Duration
	Lanes         int
	QueueMaxBytes int64

	MaxBodyBytes, MaxInflatedBytes int64
	MaxInflateRatio                int
	IngestMaxBytes                 int64 // 0: by the memory limit
	MaxReadingsPerRequest          int
	MinTime                        time.Time
	MaxFuture                      time.Duration
	MapDots                        string
	SensorTag                      string

	QueryTimeout                   time.Duration
	MaxQueries, QueryMaxSamples    int
	QueryMaxBytes, QueryMaxBacklog int64

	ServerStatusInterval time.Duration
	Thresholds           string // file; empty: the built-in ones

	LogLevel, LogFormat string
	StopTimeout         time.Duration
}

// OnOff is the value of a setting that is on or off.
type OnOff string

const (
	On  OnOff = "on"
	Off OnOff = "off"
)

// corruptionPolicy is what to do with a damaged journal.
type corruptionPolicy string

const (
	refuse     corruptionPolicy = "refuse"     // do not start
	quarantine corruptionPolicy = "quarantine" // keep a copy of the damaged segment, and store what can be read
)

// Stream has the settings of one stream.
type Stream struct {
	Name                 string
	Storage              store.Storage
	Granularity          time.Duration
	BucketFormat         store.Format
	BucketMaxReadings    int
	BucketMaxBytes       int
	MaxReadingsPerUpdate int
	FlushInterval        time.Duration
	FlushMax             time.Duration
	FlushBudget          float64 // CPU seconds of MongoDB per second
	MergeReadings        int
	Compressor           store.Compressor
	Retention            time.Duration
	WriteConcern         store.WriteConcern
	Fields               []string // that readings may have; empty: any
	OtherFields          fieldPolicy
	SealAfter            time.Duration // 0: only on request
	Duplicates           store.Duplicates
	Rollup               time.Duration // 0: none
	RollupRetention      time.Duration
	View                 OnOff
	SilentAfter          time.Duration
	Lookback             time.Duration
}

// A Setting is a flag, an environment variable and a key in the file.
type Setting struct {
	Name    string // of the flag; the variable is BRIM_ and the same in capitals
	key     string // in the file, if it is not the name
	Kind    string // placeholder of the value in the help
	Initial string // the default
	Usage   string
	secret  bool // never shown in full
	list    bool // a list in the file, with commas elsewhere
	live    bool // a reload changes it; other settings need a restart
	set     func(text string) error
}

// Common reports whether the short help shows the setting.
func (s Setting) Common() bool {
	return slices.Contains([]string{
		"mongo-uri", "database", "data-dir", "http-addr", "grpc-addr", "admin-addr", "access-file", "tls-cert", "tls-key",
		"stream", "storage", "granularity", "bucket-format", "bucket-max-readings", "compressor", "retention",
		"journal-max-bytes", "ack", "mqtt-url", "mqtt-topic", "flush-interval", "flush-max", "log-level",
	}, s.Name)
}

// path is the setting's place in the file.
func (s Setting) path() string {
	if s.key != "" {
		return s.key
	}
	return s.Name
}

// keyInGroup is the setting's name in a stream or subscription of the file.
func (s Setting) keyInGroup() string { return strings.TrimPrefix(s.Name, mqttPrefix) }

// Variable is the setting's name in the environment.
func (s Setting) Variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// All lists the settings in the order in which help and print show them.
func (c *Settings) All() []Setting {
	return slices.Concat(c.listeners(), c.mongoDB(), c.Default.all(), c.requests(), c.MQTT.all(), c.queries())
}

// listeners lists the settings of places and listeners.
func (c *Settings) listeners() []Setting {
	return []Setting{
		{
			Name: "mongo-uri", Kind: "URI", secret: true, set: config.Text(&c.MongoURI, config.CheckURI),
			Usage: "MongoDB to store in; without it Brim runs its own mongod. Other users see flags in the list of processes: give a password in BRIM_MONGO_URI or --mongo-uri-file",
		},
		{
			Name: UriFileSetting, Kind: "FILE", set: config.Text(&c.MongoURIFile, nil),
			Usage: "file that holds the URI, in place of --mongo-uri",
		},
		{Name: "database", Kind: "NAME", Initial: "brim", set: config.Text(&c.Database, checkDatabase), Usage: "MongoDB database"},
		{
			Name: "data-dir", Kind: "DIR", Initial: "./brim-data", set: config.Text(&c.DataDir, NotEmpty),
			Usage: "folder of the journal, the embedded mongod and the dead letters",
		},
		{Name: "http-addr", Kind: "ADDR", Initial: "127.0.0.1:8430", set: config.Address(&c.HTTPAddr), Usage: "listener for readings and queries over HTTP"},
		{Name: "grpc-addr", Kind: "ADDR", Initial: "127.0.0.1:8431", set: config.Address(&c.GRPCAddr), Usage: "listener for readings over gRPC"},
		{
			Name: "admin-addr", Kind: "ADDR", Initial: "127.0.0.1:8432", set: config.Address(&c.AdminAddr),
			Usage: "metrics, health, status and profiles",
		},
		{
			Name: "advertise-addr", Kind: "ADDR", set: advertised(&c.AdvertiseAddr),
			Usage: "HOST:PORT at which other daemons of the same database reach this one's --http-addr, to ask for readings that are not stored yet; port 0: the same as --http-addr; empty: they cannot ask",
		},
		{
			Name: "stream", Kind: "NAME", Initial: "readings", set: config.Text(&c.Default.Name, checkStreamName),
			Usage: "default stream, also the name of its collection",
		},
		{
			Name: "tls-cert", Kind: "FILE", set: config.Text(&c.TLSCert, nil),
			Usage: "certificate of all listeners in PEM, followed by intermediate ones; reloaded when it changes; empty: no TLS",
		},
		{Name: "tls-key", Kind: "FILE", set: config.Text(&c.TLSKey, nil), Usage: "key of --tls-cert in PEM"},
		{
			Name: "tls-client-ca", Kind: "FILE", set: config.Text(&c.TLSClientCA, nil),
			Usage: "authorities in PEM whose client certificates are accepted; the access file maps certificates to identities",
		},
		{
			Name: "tls-peer-ca", Kind: "FILE", set: config.Text(&c.TLSPeerCA, nil),
			Usage: "authorities in PEM that sign the certificates of other daemons (--advertise-addr), in addition to the system's",
		},
		{
			Name: "tls-require-client-cert", Kind: "on|off", Initial: "off", set: config.Choice(&c.TLSRequireClientCert, On, Off),
			Usage: "refuse connections without a client certificate, probes and /metrics among them",
		},
		{
			Name: "allow-unauthenticated", Kind: "on|off", Initial: "off", set: config.Choice(&c.AllowUnauthenticated, On, Off),
			Usage: "allow listeners beyond this machine without authentication",
		},
		{
			// An idle connection takes 7 KiB of memory without TLS and 50 KiB with TLS, so these take 28 to
			// 200 MiB. Two full listeners have 8192 open files; systemd and most shells allow 524,288.
			Name: "max-connections", Kind: "N", Initial: "4096", set: config.Count(&c.MaxConnections, 8, 1_000_000),
			Usage: "connections to each listener for readings; one more is closed at once",
		},
		{
			Name: "max-connections-per-address", Kind: "N", Initial: "0", set: config.Count(&c.MaxConnectionsPerAddress, 0, 1_000_000),
			Usage: "connections from one address, of IPv6 a /64; 0: three quarters of --max-connections",
		},
	}
}

// mongoDB lists the settings of authentication, quotas and the embedded mongod.
func (c *Settings) mongoDB() []Setting {
	return []Setting{
		{
			Name: "access-file", Kind: "FILE", set: config.Text(&c.AccessFile, nil),
			Usage: "YAML with identities and their scopes, see brim token; reloaded when it changes; empty: no authentication",
		},
		{
			Name: "quota-requests", live: true, Kind: "N", Initial: "0", set: config.Number(&c.Quota.RequestsPerSecond, 0, access.MaxRate),
			Usage: "requests and messages of gRPC streams per second, of each identity without such a quota of its own, or of all clients without authentication; 0: no limit",
		},
		{
			Name: "quota-readings", live: true, Kind: "N", Initial: "0", set: config.Number(&c.Quota.ReadingsPerSecond, 0, access.MaxRate),
			Usage: "likewise, readings per second; 0: no limit",
		},
		{
			Name: "quota-new-sensors", live: true, Kind: "N", Initial: "0", set: config.Number(&c.Quota.NewSensorsPerSecond, 0, access.MaxRate),
			Usage: "likewise, sensors per second that sent nothing for an hour; 0: no limit",
		},
		{
			Name: "quota-active-sensors", live: true, Kind: "N", Initial: "0", set: config.Count(&c.Quota.ActiveSensors, 0, access.MaxActiveSensors),
			Usage: "likewise, sensors per hour; 0: no limit",
		},
		{Name: "mongod-bin", Kind: "FILE", set: config.Text(&c.MongodBin, nil), Usage: "mongod to run; empty: the one on PATH, or an installed one"},
		{Name: "mongod-port", Kind: "PORT", Initial: "0", set: config.Count(&c.MongodPort, 0, math.MaxUint16), Usage: "port of the embedded mongod on 127.0.0.1; 0: the one of the last run, or any"},
		{Name: "mongod-cache", Kind: "DIR", set: config.Text(&c.MongodCache, checkMongodCache), Usage: "where an installed mongod is kept; empty: brim in $XDG_CACHE_HOME, or what stands for it"},
		{
			// mongod's own bounds.
			Name: "mongod-cache-size", Kind: "SIZE", Initial: "0", set: config.Size(&c.MongodCacheSize, 256<<20, 10_000<<30, true),
			Usage: "WiredTiger cache of the embedded mongod; 0: half of the memory",
		},
		{
			Name: "mongod-auth", Kind: "on|off", Initial: "on", set: config.Choice(&c.MongodAuth, On, Off),
			Usage: "the embedded mongod requires a password; the URI with it is in mongod/uri in --data-dir",
		},
	}
}

// requests lists the settings of the journal, acknowledgements and the limits of requests.
func (c *Settings) requests() []Setting {
	return []Setting{
		{Name: "journal", Kind: "on|off", Initial: "on", set: config.Choice(&c.Journal, On, Off), Usage: "keep readings on disk until they are stored; off: accept only what MongoDB confirms at once"},
		{Name: "journal-dir", Kind: "DIR", set: config.Text(&c.JournalDir, nil), Usage: "folder of the journal; empty: journal in --data-dir"},
		{
			// One request of the default size needs more than 1 MiB.
			Name: "journal-max-bytes", Kind: "SIZE", Initial: "4GiB", set: config.Size(&c.JournalMaxBytes, 1<<20, 1<<50, false),
			Usage: "size of the journal; when it is full because MongoDB was away for long, requests get 503",
		},
		{
			Name: "journal-corruption", Kind: "ANSWER", Initial: "refuse", set: config.Choice(&c.JournalCorruption, refuse, quarantine),
			Usage: "what to do with a damaged journal: refuse to start, or quarantine what cannot be read, which may lose readings",
		},
		{
			Name: "idempotency-window", Kind: "DURATION", Initial: "15m", set: config.Duration(&c.IdempotencyWindow, time.Second, 7*config.Day, false),
			Usage: "how long a request's Idempotency-Key is remembered",
		},
		{Name: "idempotency-keys", Kind: "N", Initial: "1000000", set: config.Count(&c.IdempotencyKeys, 1, 100_000_000), Usage: "Idempotency-Keys remembered at most"},
		{
			Name: "ack", Kind: "LEVEL", Initial: string(telemetry.Journaled), Usage: "what an acknowledgement promises by default: journaled or stored; without a journal stored",
			set: func(text string) error {
				ack, err := telemetry.ParseAck(text)
				c.Ack = ack
				return err
			},
		},
		{Name: "stored-timeout", Kind: "DURATION", Initial: "10s", set: config.Duration(&c.StoredTimeout, time.Millisecond, time.Hour, false), Usage: "how long a request waits for MongoDB"},
		{Name: "lanes", Kind: "N", Initial: "4", set: config.Count(&c.Lanes, 1, 256), Usage: "concurrent writers of each stream"},
		{Name: "queue-max-bytes", Kind: "SIZE", Initial: "0", set: config.Size(&c.QueueMaxBytes, 2<<20, 1<<40, true), Usage: "memory for readings that wait to be written, and for the newest requests; when it is full, the oldest are written early, and further ones wait in the journal; 0: a sixteenth of the memory limit, 128MiB to 1GiB"},
		{Name: "max-body-bytes", Kind: "SIZE", Initial: config.FormatSize(ingest.DefaultBodyBytes), set: config.Size(&c.MaxBodyBytes, 1<<10, 1<<30, false), Usage: "size of a request as it is sent"},
		{Name: "max-inflated-bytes", Kind: "SIZE", Initial: config.FormatSize(ingest.DefaultInflatedBytes), set: config.Size(&c.MaxInflatedBytes, 1<<10, 1<<30, false), Usage: "size of a request when decompressed"},
		{Name: "max-inflate-ratio", Kind: "N", Initial: strconv.Itoa(ingest.DefaultInflateRatio), set: config.Count(&c.MaxInflateRatio, 2, 1_000_000), Usage: "times its size that a request may have at any point of decompression, beyond 1 MiB"},
		{
			Name: "ingest-max-bytes", Kind: "SIZE", Initial: "0", set: config.Size(&c.IngestMaxBytes, ingest.MinBudget, 1<<50, true),
			Usage: "memory of all requests that are not in the journal yet, reserved before a body is read: one byte for each that is sent, and two for each when decompressed; beyond it they wait 10s, then get 503; 0: an eighth of the memory limit (the least of cgroup, GOMEMLIMIT and physical memory), at least 64MiB and at most 128MiB for each CPU, or 256MiB with one CPU",
		},
		{Name: "max-readings-per-request", Kind: "N", Initial: strconv.Itoa(ingest.DefaultReadings), set: config.Count(&c.MaxReadingsPerRequest, 1, ingest.MostReadings), Usage: "readings in one request"},
		{Name: "min-time", Kind: "TIME", Initial: "2000-01-01", set: config.Time(&c.MinTime), Usage: "refuse readings before this date or time: such timestamps are mostly seconds sent as milliseconds"},
		{Name: "max-future", live: true, Kind: "DURATION", Initial: config.FormatDuration(ingest.DefaultMaxFuture), set: config.Duration(&c.MaxFuture, time.Millisecond, 36_500*config.Day, false), Usage: "how far ahead of the clock a timestamp may be"},
		{
			Name: "map-dots", Kind: "CHAR", set: config.Text(&c.MapDots, checkMapDots),
			Usage: "what replaces dots in the names of fields and tags; empty: an underscore in line protocol and OpenTelemetry; JSON and protobuf refuse such names",
		},
		{
			Name: "line-protocol-sensor-tag", key: "line_protocol.sensor_tag", Kind: "NAME", set: config.Text(&c.SensorTag, checkTag),
			Usage: "line protocol: tag that holds the sensor id; empty: the series key",
		},
	}
}

// queries lists the settings of queries and of the process.
func (c *Settings) queries() []Setting {
	return []Setting{
		{Name: "query-timeout", Kind: "DURATION", Initial: "30s", set: config.Duration(&c.QueryTimeout, time.Millisecond, time.Hour, false), Usage: "how long one answer to a query may take"},
		{Name: "max-queries", Kind: "N", Initial: strconv.Itoa(read.DefaultQueries()), set: config.Count(&c.MaxQueries, 1, 10_000), Usage: "concurrent queries, by default two per CPU, at least 4; others wait a second, and then get 503"},
		{Name: "query-max-bytes", Kind: "SIZE", Initial: "256MiB", set: config.Size(&c.QueryMaxBytes, 1<<20, 1<<40, false), Usage: "bytes of documents that one answer may read"},
		{Name: "query-max-samples", Kind: "N", Initial: strconv.Itoa(promapi.DefaultMaxSamples), set: config.Count(&c.QueryMaxSamples, 1, 1_000_000_000), Usage: "samples that one PromQL query may hold in memory, 16 bytes each"},
		{
			Name: "query-max-backlog", Kind: "SIZE", Initial: "64MiB", set: config.Size(&c.QueryMaxBacklog, 1<<20, 1<<40, false),
			Usage: "largest part of the journal to search for readings that are neither stored nor in memory; if it is longer, queries get 503",
		},
		{
			Name: "server-status-interval", Kind: "DURATION", Initial: "5s", set: config.Duration(&c.ServerStatusInterval, time.Second, time.Hour, false),
			Usage: "how often MongoDB's storage engine and its disk are sampled, for the metrics and the live page",
		},
		{
			Name: "thresholds", live: true, Kind: "FILE", set: config.Text(&c.Thresholds, CheckThresholds),
			Usage: "YAML with thresholds of the storage signals, like disk_busy: {degrading: 60, bottleneck: 90}; empty: the built-in ones",
		},
		{Name: "log-level", live: true, Kind: "LEVEL", Initial: "info", set: config.Choice(&c.LogLevel, "debug", "info", "warn", "error"), Usage: "debug, info, warn or error"},
		{Name: "log-format", Kind: "FORM", Initial: "text", set: config.Choice(&c.LogFormat, "text", "json"), Usage: "text or json"},
		{
			Name: "stop-timeout", live: true, Kind: "DURATION", Initial: "15s", set: config.Duration(&c.StopTimeout, time.Second, time.Hour, false),
			Usage: "how long a stop may take, flush and mongod included",
		},
	}
}

// all lists the settings of a stream. At the top level they are the defaults.
func (s *Stream) all() []Setting {
	return []Setting{
		{
			Name: "storage", Kind: "KIND", Initial: "bucket", Usage: "how readings are stored: bucket, timeseries or memory",
			set: config.Choice(&s.Storage, store.Bucket, store.TimeSeries, store.Memory),
		},
		{
			Name: "granularity", Kind: "DURATION", Initial: "5m", Usage: "length of a bucket's window, 1m to 1h, a divisor of an hour; with columns up to 24h, a divisor of a day",
			set: func(text string) error {
				d, err := config.ParseDuration(text)
				if err != nil {
					return err
				}
				s.Granularity = d
				if store.CheckGranularity(d, store.Columns) == nil { // checkTogether knows the format
					return nil
				}
				return store.CheckGranularity(d, store.Documents)
			},
		},
		{
			Name: "bucket-format", live: true, Kind: "FORMAT", Initial: string(store.Documents), set: config.Choice(&s.BucketFormat, store.Documents, store.Columns),
			Usage: "how buckets hold readings: documents, which every MongoDB client can read, or columns, packed blocks that cost MongoDB far less; the view STREAM.flat shows both",
		},
		{Name: "bucket-max-readings", live: true, Kind: "N", Initial: "1000", set: config.Count(&s.BucketMaxReadings, 1, 1_000_000), Usage: "readings in one part of a bucket; with columns the default is 20000"},
		{Name: "bucket-max-bytes", live: true, Kind: "SIZE", Initial: "256KiB", set: config.Size(&s.BucketMaxBytes, 1<<10, 2<<20, false), Usage: "estimated bytes of the readings in one part of a bucket, as sub-documents; with columns the default is 2MiB"},
		{Name: "max-readings-per-update", live: true, Kind: "N", Initial: "0", set: config.Count(&s.MaxReadingsPerUpdate, 0, 1_000_000), Usage: "readings in one update of a bucket document; 0: no limit, 1: no merging"},
		{Name: "flush-interval", live: true, Kind: "DURATION", Initial: "1s", set: config.Duration(&s.FlushInterval, time.Millisecond, time.Hour, false), Usage: "shortest time that readings gather before they are written, unless a client waits for them; up to four times as long under load, but at most 4s"},
		{Name: "merge-readings", live: true, Kind: "N", Initial: "60", set: config.Count(&s.MergeReadings, 1, queue.MaxMerge), Usage: "write a bucket before --flush-max once this many of its readings wait"},
		{Name: "flush-max", live: true, Kind: "DURATION", Initial: "5m", set: config.Duration(&s.FlushMax, time.Millisecond, queue.MaxGather, false), Usage: "longest time that a reading waits to be merged before it is written; never longer than the bucket's window"},
		{Name: "flush-budget", live: true, Kind: "PERCENT", Initial: "2%", set: config.Percent(&s.FlushBudget, 10_000), Usage: "CPU of MongoDB, in percent of one core, to spend on writing readings before --flush-max, for each stream; 0%: none"},
		{
			Name: "compressor", Kind: "NAME", Initial: "snappy", Usage: "WiredTiger block compressor: snappy, zstd or none",
			set: config.Choice(&s.Compressor, store.Snappy, store.Zstd, store.NoneCompressor),
		},
		{
			// A TTL index allows up to 68 years.
			Name: "retention", live: true, Kind: "DURATION", Initial: "0", set: config.Duration(&s.Retention, time.Minute, 24_000*config.Day, true),
			Usage: "age at which MongoDB removes readings; 0: never",
		},
		{
			Name: "write-concern", live: true, Kind: "majority|N", Initial: "majority", set: writeConcern(&s.WriteConcern),
			Usage: "members of the replica set that a write waits for; readings that a minority has can be lost when the primary is",
		},
		{
			Name: "write-journal", live: true, Kind: "on|off", Initial: "on", set: writeJournal(&s.WriteConcern),
			Usage: "wait until those members have journaled the write; off: readings can be lost when all of them crash",
		},
		{
			Name: "seal-after", live: true, Kind: "DURATION", Initial: "0", set: config.Duration(&s.SealAfter, time.Minute, 365*config.Day, true),
			Usage: "pack a bucket into one block once its window ended this long ago, at least twice --flush-max; 0: only brim seal does; with columns the default is 2h",
		},
		{
			Name: "duplicates", live: true, Kind: "RULE", Initial: string(store.Keep), set: config.Choice(&s.Duplicates, store.Keep, store.DropIdentical, store.LastWins),
			Usage: "which readings of a sensor with the same time are kept: keep (all), drop-identical (one of those with the same fields, values and tags), or with columns last-wins (the last value of each field); queries apply the rule immediately; sealing removes the duplicates from MongoDB",
		},
		{
			Name: "rollup", Kind: "DURATION", Initial: "0", set: config.Duration(&s.Rollup, time.Minute, config.Day, true),
			Usage: "keep statistics of each sensor in STREAM.rollup for each step of this length, once its buckets are sealed; they remain when readings expire; a divisor of a day; 0: none",
		},
		{
			Name: "rollup-retention", live: true, Kind: "DURATION", Initial: "0", set: config.Duration(&s.RollupRetention, config.Day, 24_000*config.Day, true),
			Usage: "age at which MongoDB removes rollups; 0: never",
		},
		{Name: "fields", live: true, Kind: "A,B,…", list: true, set: fieldNames(&s.Fields), Usage: "fields that readings may have; empty: any"},
		{
			Name: "other-fields", live: true, Kind: "ANSWER", Initial: string(refuseReading), set: config.Choice(&s.OtherFields, refuseReading, dropField),
			Usage: "what to do with a reading that has other fields than those: refuse it, or drop the fields",
		},
		{Name: "view", live: true, Kind: "on|off", Initial: "on", set: config.Choice(&s.View, On, Off), Usage: "keep a view of each bucket stream, STREAM.flat, that shows one reading per document"},
		{
			Name: "silent-after", live: true, Kind: "DURATION", Initial: "0", set: config.Duration(&s.SilentAfter, time.Second, 3650*config.Day, true),
			Usage: "how long after its last reading a sensor counts as silent; 0: none does",
		},
		{
			Name: "lookback", live: true, Kind: "DURATION", Initial: "0", set: config.Duration(&s.Lookback, time.Second, 365*config.Day, true),
			Usage: "how old a reading may be to count as the present value in PromQL; 0: 5m, or three times the interval of a sensor that sends less often, up to 3h",
		},
	}
}

// checkTogether checks settings against each other.
func (c *Settings) checkTogether() error {
	if c.MaxInflatedBytes < c.MaxBodyBytes {
		return fmt.Errorf("max-inflated-bytes %s is less than max-body-bytes %s; a request does not shrink when it is decompressed",
			config.FormatSize(c.MaxInflatedBytes), config.FormatSize(c.MaxBodyBytes))
	}
	if least := ingest.LeastBudget(c.MaxBodyBytes); c.IngestMaxBytes > 0 && c.IngestMaxBytes < least {
		return fmt.Errorf("ingest-max-bytes %s is too small for one request of max-body-bytes %s; it needs %s",
			config.FormatSize(c.IngestMaxBytes), config.FormatSize(c.MaxBodyBytes), config.FormatSize(least))
	}
	if c.Ack == telemetry.Journaled && !c.journaling() {
		return errors.New("ack journaled needs a journal, and journal is off; allowed: stored")
	}
	for _, s := range c.Streams {
		format := store.Documents
		if s.hasBuckets() {
			format = s.BucketFormat
		}
		if err := store.CheckGranularity(s.Granularity, format); err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if s.Duplicates == store.LastWins && format != store.Columns {
			return fmt.Errorf("stream %s: duplicates last-wins needs --storage bucket with --bucket-format columns, which keep the order in which readings arrived; allowed here: keep, drop-identical", s.Name)
		}
		if waits := min(s.FlushMax, s.Granularity); s.hasBuckets() && s.SealAfter > 0 && s.SealAfter < 2*waits {
			return fmt.Errorf("stream %s: seal-after %s is less than twice the %s that readings may wait (flush-max); most buckets would be packed before their last readings arrive",
				s.Name, config.FormatDuration(s.SealAfter), config.FormatDuration(waits))
		}
		if err := s.checkRollup(); err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	all := (&listeners{}).bindings(c)
	for i, b := range all {
		for _, other := range all[:i] {
			if b.address == other.address && !strings.HasSuffix(b.address, ":0") {
				return fmt.Errorf("%s and %s are both %s; each listener needs an address of its own", other.flag[2:], b.flag[2:], b.address)
			}
		}
	}
	if err := c.checkSubscriptions(); err != nil {
		return err
	}
	return c.checkListeners()
}

// longestRetention is how long anything of a sensor is kept; 0: forever.
func (s Stream) longestRetention() time.Duration {
	if s.Rollup > 0 {
		return s.RollupRetention
	}
	return s.Retention
}

// checkRollup checks the settings of rollups against the others.
func (s *Stream) checkRollup() error {
	switch {
	case s.Rollup == 0 && s.RollupRetention > 0:
		return errors.New("rollup-retention needs rollup, the length of a step, like 1h")
	case s.Rollup == 0:
		return nil
	case config.Day%s.Rollup != 0 || s.Rollup%time.Second != 0:
		return fmt.Errorf("rollup %s does not divide a day; allowed are for example 10m, 1h, 6h and 24h", config.FormatDuration(s.Rollup))
	case !s.hasBuckets():
		return fmt.Errorf("rollup needs --storage bucket: rollups are made when buckets are sealed, and storage %s has none", s.Storage)
	case s.SealAfter == 0:
		return errors.New("rollup needs seal-after: rollups are made when buckets are sealed; give it a value, like 2h")
	case s.RollupRetention > 0 && (s.Retention == 0 || s.RollupRetention < s.Retention):
		return fmt.Errorf("rollup-retention %s is shorter than retention: rollups are for the time when readings have expired", config.FormatDuration(s.RollupRetention))
	}
	return nil
}

// journaling reports whether readings are journaled on disk.
func (c *Settings) journaling() bool { return c.Journal == On }

// JournalPath is where the journal is.
func (c *Settings) JournalPath() string {
	if c.JournalDir != "" {
		return c.JournalDir
	}
	return filepath.Join(c.DataDir, "journal")
}

// acks lists the possible levels of acknowledgement.
func (c *Settings) acks() []telemetry.Ack {
	if c.journaling() {
		return []telemetry.Ack{telemetry.Journaled, telemetry.Stored}
	}
	return []telemetry.Ack{telemetry.Stored}
}

// queueParts divides the memory for pending readings, given the memory limit. Up to a third
// is for readings that were just journaled, so that busy lanes need not read them from disk
// later. The lanes get the rest. Usually both parts refer to the same readings.
func (c *Settings) queueParts(limit uint64) (tail, lanes int64) {
	all := cmp.Or(c.QueueMaxBytes, queueBytes(limit))
	tail = min(all/3, 16<<20)
	return tail, all - tail
}

// policy returns when updates of the stream are sent.
func (s Stream) policy() queue.Policy {
	p := queue.Policy{Interval: s.FlushInterval, Readings: s.MergeReadings, Max: s.FlushMax, Budget: s.FlushBudget}
	if s.FlushBudget == 0 {
		p.Budget = -1
	}
	if s.Storage == store.Memory { // it costs MongoDB nothing
		p.Budget = 1 << 20
	}
	return p
}

// needsMongoDB reports whether any stream is stored there.
func (c *Settings) needsMongoDB() bool {
	return slices.ContainsFunc(c.Streams, func(s Stream) bool { return s.Storage != store.Memory })
}

// checkListeners checks the settings of listeners against each other.
func (c *Settings) checkListeners() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("tls-cert and tls-key belong together; give both, or neither")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("tls-client-ca needs TLS; also give tls-cert and tls-key")
	case c.TLSRequireClientCert == On && c.TLSClientCA == "":
		return errors.New("tls-require-client-cert needs the authority of those certificates; also give tls-client-ca")
	case c.MaxConnectionsPerAddress > c.MaxConnections:
		return fmt.Errorf("max-connections-per-address %d is more than max-connections %d", c.MaxConnectionsPerAddress, c.MaxConnections)
	}
	return nil
}

// openGuard returns the guard; nil without authentication and quotas.
func (d *daemon) openGuard() (*access.Guard, error) {
	c := d.cfg
	if c.AccessFile == "" && c.Quota == (access.Quota{}) {
		return nil, nil
	}
	return access.Open(access.Config{Path: c.AccessFile, Default: c.Quota, Logger: d.log, Registerer: d.registry, TLS: d.tls})
}

// fieldPolicy is what to do with a reading that has fields which its stream does not allow.
type fieldPolicy string

const (
	refuseReading fieldPolicy = "refuse" // the reading is refused
	dropField     fieldPolicy = "drop"   // it is accepted without them
)

// writeConcern parses majority, or a number of members.
func writeConcern(place *store.WriteConcern) func(string) error {
	return func(s string) error {
		if s == store.MajorityName {
			place.Members = 0
			return nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > store.MaxMembers {
			return fmt.Errorf("%q is neither %s nor a whole number from 1 to %d", s, store.MajorityName, store.MaxMembers)
		}
		place.Members = n
		return nil
	}
}

// writeJournal parses on and off.
func writeJournal(place *store.WriteConcern) func(string) error {
	return func(s string) error {
		var position OnOff
		err := config.Choice(&position, On, Off)(s)
		place.Unjournaled = position == Off
		return err
	}
}

// fieldNames parses comma-separated names.
func fieldNames(place *[]string) func(string) error {
	return func(s string) error {
		*place = nil
		if strings.TrimSpace(s) == "" {
			return nil
		}
		var names []string
		for name := range strings.SplitSeq(s, ",") {
			name = strings.TrimSpace(name)
			if r := telemetry.CheckFieldName([]byte(name)); r != nil {
				return fmt.Errorf("%q cannot name a field: %s", name, r.Message)
			}
			if slices.Contains(names, name) {
				return fmt.Errorf("%q is named twice", name)
			}
			names = append(names, name)
		}
		if len(names) > telemetry.MaxFields {
			return fmt.Errorf("%d fields are named; a reading has at most %d", len(names), telemetry.MaxFields)
		}
		*place = names
		return nil
	}
}

// NotEmpty refuses an empty value.
func NotEmpty(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	return nil
}

// maxStreamName leaves space for the database in a namespace of MongoDB, which has 255 bytes.
const maxStreamName = 64

// checkStreamName checks a name that is used without quoting as a URL path segment, a metric
// label and a collection.
func checkStreamName(name string) error {
	safe := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' }
	switch {
	case name == "" || len(name) > maxStreamName || strings.ContainsFunc(name, func(c rune) bool { return !safe(c) }):
		return fmt.Errorf("%q cannot name a stream; allowed: 1 to %d characters of a-z, 0-9, _ and -", name, maxStreamName)
	case name == "system":
		return errors.New(`"system" cannot name a stream; MongoDB reserves it`)
	case slices.Contains([]string{claim.Collection, store.FenceName, store.MaintenanceName}, name):
		return fmt.Errorf("%q cannot name a stream; it is a collection of Brim's own", name)
	}
	return nil
}

func checkDatabase(name string) error {
	const most = 63 // MongoDB's limit
	switch {
	case name == "" || len(name) > most || strings.ContainsAny(name, "/\\. \"$*<>:|?\x00"):
		return fmt.Errorf("%q cannot name a database; allowed: 1 to %d bytes without / \\ . \" $ * < > : | ? and space", name, most)
	case slices.Contains([]string{"admin", "local", "config"}, name):
		return fmt.Errorf("%q is MongoDB's own database", name)
	}
	return nil
}

// checkMongodCache returns an error for a size, because the setting for that has a similar
// name.
func checkMongodCache(s string) error {
	if _, err := humanize.ParseBytes(s); err == nil {
		return fmt.Errorf("%q is a size, and this is the folder where an installed mongod is kept; the size of mongod's cache is mongod-cache-size (a folder of this name is ./%s)", s, s)
	}
	return nil
}

func checkMapDots(s string) error {
	if s == "" {
		return nil
	}
	if len(s) != 1 || s[0] <= ' ' || s[0] >= 0x7f || s == "." || s == "$" {
		return fmt.Errorf("%q is not one printable ASCII character other than . and $", s)
	}
	return nil
}

func checkTag(s string) error {
	if len(s) > telemetry.MaxNameBytes {
		return fmt.Errorf("a tag's name has at most %d bytes, this one has %d", telemetry.MaxNameBytes, len(s))
	}
	return nil
}
