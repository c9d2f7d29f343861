package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/brief"
	"github.com/brim-telemetry/brim/internal/ingest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// settings is everything that can be set of `brim serve`, checked.
type settings struct {
	MongoURI     string // whichever way it was given
	MongoURIFile string // empty: it was not given by a file
	Database     string
	DataDir      string

	MongodBin       string
	MongodCache     string
	MongodPort      int
	MongodCacheSize int64 // bytes; 0: mongod's choice
	MongodAuth      switchPosition

	HTTPAddr, GRPCAddr, AdminAddr string
	listenerSettings
	accessSettings

	Default stream   // its Name is --stream
	Streams []stream // all of them, the default one among them, by name

	Journal           switchPosition
	JournalDir        string // empty: in DataDir
	JournalMaxBytes   int64
	JournalCorruption corruptionAnswer
	IdempotencyWindow time.Duration
	IdempotencyKeys   int

	Ack           telemetry.Ack
	StoredTimeout time.Duration
	FlushInterval time.Duration
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
	MaxQueries                     int
	QueryMaxBytes, QueryMaxBacklog int64

	ServerStatusInterval time.Duration
	Thresholds           string // file; empty: the built-in ones

	LogLevel, LogFormat string
	StopTimeout         time.Duration
}

// switchPosition is the value of a setting that is on or off.
type switchPosition string

const (
	on  switchPosition = "on"
	off switchPosition = "off"
)

// corruptionAnswer is what is done with a journal that is damaged.
type corruptionAnswer string

const (
	refuse     corruptionAnswer = "refuse"     // do not start
	quarantine corruptionAnswer = "quarantine" // put the damaged segment aside, save what can be read of it
)

// stream is what can be set of one stream.
type stream struct {
	Name                 string
	Storage              store.Storage
	Granularity          time.Duration
	BucketMaxReadings    int
	BucketMaxBytes       int
	MaxReadingsPerUpdate int
	Compressor           store.Compressor
	Retention            time.Duration
	WriteConcern         store.WriteConcern
	Fields               []string // that readings may have; none: any
	OtherFields          fieldAnswer
	View                 switchPosition
	SilentAfter          time.Duration
}

// A setting is one line of the configuration: a flag, a variable and a key of
// the file, with one place that its value goes to.
type setting struct {
	name    string // of the flag; the variable is BRIM_ and the same in capitals
	key     string // in the file, where it is not the name
	kind    string // what help shows in place of a value
	initial string // the default
	usage   string
	secret  bool // never shown in full
	list    bool // a list in the file, with commas elsewhere
	set     func(text string) error
}

// path is the setting's place in the file.
func (s setting) path() string {
	if s.key != "" {
		return s.key
	}
	return s.name
}

// variable is the setting's name in the environment.
func (s setting) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// all lists the settings in the order in which help and print show them.
func (c *settings) all() []setting {
	return slices.Concat(c.places(), c.listenerSettings.all(), c.accessSettings.all(), c.mongod(), c.Default.all(), c.journal(), c.promise(), c.limits(), c.queries(), c.process())
}

func (c *settings) places() []setting {
	return []setting{
		{
			name: "mongo-uri", kind: "URI", secret: true, set: text(&c.MongoURI, checkURI),
			usage: "MongoDB to store in; without it Brim runs a mongod of its own. Others see flags in the list of processes: give a password in BRIM_MONGO_URI or by --mongo-uri-file",
		},
		{
			name: uriFileSetting, kind: "FILE", set: text(&c.MongoURIFile, nil),
			usage: "file that holds the URI, in place of --mongo-uri",
		},
		{name: "database", kind: "NAME", initial: "brim", set: text(&c.Database, checkDatabase), usage: "MongoDB database"},
		{
			name: "data-dir", kind: "DIR", initial: "./brim-data", set: text(&c.DataDir, notEmpty),
			usage: "folder of the embedded mongod and of what could not be stored",
		},
		{name: "http-addr", kind: "ADDR", initial: "127.0.0.1:8430", set: address(&c.HTTPAddr), usage: "where readings come in over HTTP"},
		{name: "grpc-addr", kind: "ADDR", initial: "127.0.0.1:8431", set: address(&c.GRPCAddr), usage: "where readings come in over gRPC"},
		{
			name: "admin-addr", kind: "ADDR", initial: "127.0.0.1:8432", set: address(&c.AdminAddr),
			usage: "metrics, health, status and profiles",
		},
		{
			name: "stream", kind: "NAME", initial: "readings", set: text(&c.Default.Name, checkStreamName),
			usage: "default stream, also the name of its collection",
		},
	}
}

func (c *settings) mongod() []setting {
	return []setting{
		{name: "mongod-bin", kind: "FILE", set: text(&c.MongodBin, nil), usage: "mongod to run; empty: the one on PATH, or an installed one"},
		{name: "mongod-port", kind: "PORT", initial: "0", set: count(&c.MongodPort, 0, math.MaxUint16), usage: "port of the embedded mongod on 127.0.0.1; 0: the one of the last run, or any"},
		{name: "mongod-cache", kind: "DIR", set: text(&c.MongodCache, checkMongodCache), usage: "where an installed mongod is kept; empty: brim in $XDG_CACHE_HOME, or what stands for it"},
		{
			// mongod's own bounds.
			name: "mongod-cache-size", kind: "SIZE", initial: "0", set: size(&c.MongodCacheSize, 256<<20, 10_000<<30, true),
			usage: "WiredTiger cache of the embedded mongod; 0: half of the memory",
		},
		{
			name: "mongod-auth", kind: "on|off", initial: "on", set: choice(&c.MongodAuth, on, off),
			usage: "have the embedded mongod ask for a password; the URI with it is in mongod/uri in --data-dir",
		},
	}
}

// all lists what a stream may set for itself; the top level has the same
// settings, for the streams that do not.
func (s *stream) all() []setting {
	return []setting{
		{
			name: "storage", kind: "KIND", initial: "bucket", usage: "where readings rest: bucket, timeseries or memory",
			set: choice(&s.Storage, store.Bucket, store.TimeSeries, store.Memory),
		},
		{
			name: "granularity", kind: "DURATION", initial: "5m", usage: "length of a bucket's window, 1m to 1h, a divisor of an hour",
			set: func(text string) error {
				d, err := brief.ParseDuration(text)
				if err != nil {
					return err
				}
				s.Granularity = d
				return store.CheckGranularity(d)
			},
		},
		{name: "bucket-max-readings", kind: "N", initial: "1000", set: count(&s.BucketMaxReadings, 1, 1_000_000), usage: "readings in one part of a bucket"},
		{name: "bucket-max-bytes", kind: "SIZE", initial: "256KiB", set: size(&s.BucketMaxBytes, 1<<10, 2<<20, false), usage: "estimated bytes of the readings in one part of a bucket"},
		{name: "max-readings-per-update", kind: "N", initial: "0", set: count(&s.MaxReadingsPerUpdate, 0, 1_000_000), usage: "readings in one update of a bucket document; 0: no limit, 1: no merging"},
		{
			name: "compressor", kind: "NAME", initial: "snappy", usage: "WiredTiger block compressor: snappy, zstd or none",
			set: choice(&s.Compressor, store.Snappy, store.Zstd, store.NoneCompressor),
		},
		{
			// Up to what fits a TTL index, 68 years.
			name: "retention", kind: "DURATION", initial: "0", set: duration(&s.Retention, time.Minute, 24_000*day, true),
			usage: "age at which MongoDB removes readings; 0: never",
		},
		{
			name: "write-concern", kind: "majority|N", initial: "majority", set: writeConcern(&s.WriteConcern),
			usage: "members of the replica set that a write waits for; readings that a minority has can be lost when the primary is",
		},
		{
			name: "write-journal", kind: "on|off", initial: "on", set: writeJournal(&s.WriteConcern),
			usage: "wait until those members have journaled the write; off: readings can be lost when all of them crash",
		},
		{name: "fields", kind: "A,B,…", list: true, set: fieldNames(&s.Fields), usage: "fields that readings may have; empty: any"},
		{
			name: "other-fields", kind: "ANSWER", initial: string(refuseReading), set: choice(&s.OtherFields, refuseReading, dropField),
			usage: "what to do with a reading that has other fields than those: refuse it, or drop the fields",
		},
		{name: "view", kind: "on|off", initial: "on", set: choice(&s.View, on, off), usage: "keep a view beside each bucket stream, STREAM.flat, that shows one reading a document"},
		{
			name: "silent-after", kind: "DURATION", initial: "0", set: duration(&s.SilentAfter, time.Second, 3650*day, true),
			usage: "how long after its last reading a sensor counts as silent; 0: none does",
		},
	}
}

func (c *settings) journal() []setting {
	return []setting{
		{name: "journal", kind: "on|off", initial: "on", set: choice(&c.Journal, on, off), usage: "keep readings on disk until they are stored; off: take only what MongoDB confirms at once"},
		{name: "journal-dir", kind: "DIR", set: text(&c.JournalDir, nil), usage: "folder of the journal; empty: journal in --data-dir"},
		{
			// Below a mebibyte not even one request of the default size fits.
			name: "journal-max-bytes", kind: "SIZE", initial: "4GiB", set: size(&c.JournalMaxBytes, 1<<20, 1<<50, false),
			usage: "size of the journal; when MongoDB is away for so long that it is full, requests get 503",
		},
		{
			name: "journal-corruption", kind: "ANSWER", initial: "refuse", set: choice(&c.JournalCorruption, refuse, quarantine),
			usage: "what to do with a damaged journal: refuse to start, or quarantine what cannot be read, which may lose readings",
		},
		{
			name: "idempotency-window", kind: "DURATION", initial: "15m", set: duration(&c.IdempotencyWindow, time.Second, 7*day, false),
			usage: "how long a request's Idempotency-Key is remembered",
		},
		{name: "idempotency-keys", kind: "N", initial: "1000000", set: count(&c.IdempotencyKeys, 1, 100_000_000), usage: "Idempotency-Keys remembered at most"},
	}
}

func (c *settings) promise() []setting {
	return []setting{
		{
			name: "ack", kind: "LEVEL", initial: string(telemetry.Journaled), usage: "what an acknowledgement promises where the client does not say: journaled or stored; without a journal it is stored",
			set: func(text string) error {
				ack, err := telemetry.ParseAck(text)
				c.Ack = ack
				return err
			},
		},
		{name: "stored-timeout", kind: "DURATION", initial: "10s", set: duration(&c.StoredTimeout, time.Millisecond, time.Hour, false), usage: "how long a request waits for MongoDB"},
		{name: "flush-interval", kind: "DURATION", initial: "1s", set: duration(&c.FlushInterval, time.Millisecond, time.Hour, false), usage: "how long readings gather before they are written; under load up to four times as long, 4s at most"},
		{name: "lanes", kind: "N", initial: "4", set: count(&c.Lanes, 1, 256), usage: "concurrent writers of each stream"},
		{name: "queue-max-bytes", kind: "SIZE", initial: "48MiB", set: size(&c.QueueMaxBytes, 2<<20, 1<<40, false), usage: "memory for readings that wait to be stored, a third of it for the newest requests; with a journal the others wait there"},
	}
}

func (c *settings) limits() []setting {
	return []setting{
		{name: "max-body-bytes", kind: "SIZE", initial: "8MiB", set: size(&c.MaxBodyBytes, 1<<10, 1<<30, false), usage: "size of a request as it is sent"},
		{name: "max-inflated-bytes", kind: "SIZE", initial: "64MiB", set: size(&c.MaxInflatedBytes, 1<<10, 1<<30, false), usage: "size of a request when decompressed"},
		{name: "max-inflate-ratio", kind: "N", initial: "200", set: count(&c.MaxInflateRatio, 2, 1_000_000), usage: "times its size that a request may have at any point of decompression, beyond 1 MiB"},
		{
			name: "ingest-max-bytes", kind: "SIZE", initial: "0", set: size(&c.IngestMaxBytes, ingest.MinBudget, 1<<50, true),
			usage: "memory of all requests that are not in the journal yet, taken before a body is read: two bytes for each that is sent, and two for each when decompressed; beyond it they wait 10s, then get 503; 0: an eighth of the memory limit (the least of cgroup, GOMEMLIMIT and physical memory), at least 64MiB",
		},
		{name: "max-readings-per-request", kind: "N", initial: "10000", set: count(&c.MaxReadingsPerRequest, 1, 1_000_000), usage: "readings in one request"},
		{name: "min-time", kind: "TIME", initial: "2000-01-01", set: instant(&c.MinTime), usage: "refuse readings before this date or RFC 3339 time: such timestamps are mostly seconds sent as milliseconds"},
		{name: "max-future", kind: "DURATION", initial: "10m", set: duration(&c.MaxFuture, time.Millisecond, 36_500*day, false), usage: "how far ahead of the clock a timestamp may be"},
		{
			name: "map-dots", kind: "CHAR", set: text(&c.MapDots, checkMapDots),
			usage: "what replaces dots in the names of fields and tags; empty: such names are refused",
		},
		{
			name: "line-protocol-sensor-tag", key: "line_protocol.sensor_tag", kind: "NAME", set: text(&c.SensorTag, checkTag),
			usage: "line protocol: tag that holds the sensor id; empty: the series key",
		},
	}
}

func (c *settings) process() []setting {
	return []setting{
		{
			name: "server-status-interval", kind: "DURATION", initial: "5s", set: duration(&c.ServerStatusInterval, time.Second, time.Hour, false),
			usage: "how often MongoDB's storage engine and its disk are looked at, for the metrics and the live page",
		},
		{
			name: "thresholds", kind: "FILE", set: text(&c.Thresholds, checkThresholds),
			usage: "YAML with thresholds of what is looked at, like disk_busy: {degrading: 60, bottleneck: 90}; empty: the built-in ones",
		},
		{name: "log-level", kind: "LEVEL", initial: "info", set: choice(&c.LogLevel, "debug", "info", "warn", "error"), usage: "debug, info, warn or error"},
		{name: "log-format", kind: "FORM", initial: "text", set: choice(&c.LogFormat, "text", "json"), usage: "text or json"},
		{
			name: "stop-timeout", kind: "DURATION", initial: "15s", set: duration(&c.StopTimeout, time.Second, time.Hour, false),
			usage: "how long a stop may take, flush and mongod included",
		},
	}
}

// checkTogether checks what no setting can check alone.
func (c *settings) checkTogether() error {
	if c.MaxInflatedBytes < c.MaxBodyBytes {
		return fmt.Errorf("max-inflated-bytes %s is less than max-body-bytes %s; a request does not shrink when it is decompressed",
			formatSize(c.MaxInflatedBytes), formatSize(c.MaxBodyBytes))
	}
	if least := ingest.LeastBudget(c.MaxBodyBytes); c.IngestMaxBytes > 0 && c.IngestMaxBytes < least {
		return fmt.Errorf("ingest-max-bytes %s is too small for one request of max-body-bytes %s; it needs %s",
			formatSize(c.IngestMaxBytes), formatSize(c.MaxBodyBytes), formatSize(least))
	}
	if c.Ack == telemetry.Journaled && !c.journaling() {
		return errors.New("ack journaled needs a journal, and journal is off; allowed is stored")
	}
	return c.checkListeners()
}

// journaling reports whether readings are journaled on disk.
func (c *settings) journaling() bool { return c.Journal == on }

// journalDir is where the journal is.
func (c *settings) journalDir() string {
	if c.JournalDir != "" {
		return c.JournalDir
	}
	return filepath.Join(c.DataDir, "journal")
}

// acks lists the levels of acknowledgement that can be had.
func (c *settings) acks() []telemetry.Ack {
	if c.journaling() {
		return []telemetry.Ack{telemetry.Journaled, telemetry.Stored}
	}
	return []telemetry.Ack{telemetry.Stored}
}

// Of the memory for waiting readings, a third is for those that were just
// journaled, so that lanes which are writing need not read them from the disk;
// the lanes have the rest. Mostly both hold the same.
func (c *settings) tailBytes() int64 { return c.QueueMaxBytes / 3 }
func (c *settings) laneBytes() int64 { return c.QueueMaxBytes - c.tailBytes() }

// needsMongoDB reports whether any stream is stored there.
func (c *settings) needsMongoDB() bool {
	return slices.ContainsFunc(c.Streams, func(s stream) bool { return s.Storage != store.Memory })
}
