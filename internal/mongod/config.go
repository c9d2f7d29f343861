package mongod

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says which mongod to run, on which files and with which settings.
// Only DataDir is required, and only to start.
type Config struct {
	// Bin is the mongod to run: an executable, or a script that ends in exec
	// of one. Empty: the one on PATH, then the cache, then the installed one.
	Bin string
	// CacheDir holds installed mongods. Empty: $XDG_CACHE_HOME/brim, or what
	// os.UserCacheDir says in its place.
	CacheDir string
	// DataDir is the daemon's data directory; mongod's files, its log and
	// what is remembered about it are in its folder mongod.
	DataDir string
	// Port on 127.0.0.1. 0: the one of the last run, or any free one.
	Port int
	// Compressor of collections made from now on: snappy, zstd or none.
	// Empty: snappy, mongod's own default.
	Compressor string
	// CacheSizeGB of WiredTiger. 0 leaves the choice to mongod, which knows
	// the limits of a container: half of (memory - 1 GiB), at least 0.25. The
	// other half is enough for the daemon, whose memory is bounded, and for
	// the page cache.
	CacheSizeGB float64
	// OplogSizeMB, in force only when the data directory is new. 0: 1,024.
	// mongod's own default, 5 % of the disk and up to 50 GB, is meant for
	// members that must catch up; here is only one.
	OplogSizeMB int
	// CheckpointInterval is the time from one checkpoint to the next, in whole
	// seconds up to an hour. 0 leaves mongod's own, 60 s. It is no parameter: as
	// one, mongod 6.0 tells it and does not obey it.
	CheckpointInterval time.Duration
	// EngineConfig is passed on to WiredTiger as it is. Empty: nothing.
	EngineConfig string
	// Parameters are further --setParameter; they win over those set here.
	Parameters map[string]string
	// Auth has mongod ask everybody for a password. Then URI has that of a user
	// with the rights that the daemon needs, and the file at URIFile that of
	// one who may do anything; both are set at each start. Data that were
	// written without it are taken over as they are.
	Auth bool
	// Database is the daemon's, which its user may use. Required with Auth.
	Database string
	// Standalone leaves the replica set out: no majority, no retryable
	// writes, no change streams.
	Standalone bool
	// DieWithParent ends mongod with this process however that ends. It is
	// for tests: a daemon's mongod outlives it, and the next one ends it
	// cleanly. Only Linux can do it.
	DieWithParent bool
	// StopTimeout is how long a clean stop may take before mongod is killed.
	// 0: 10 s.
	StopTimeout time.Duration
	// Logger gets starts, stops, deaths and restarts. nil: nobody.
	Logger *slog.Logger
	// Progress gets what an installation is doing. nil: nobody.
	Progress io.Writer
	// Registerer gets the metrics. nil: nobody.
	Registerer prometheus.Registerer
}

const (
	defaultOplogSizeMB = 1024
	defaultStopTimeout = 10 * time.Second
	// replicaSet is also the name written into the files, so it never changes.
	replicaSet = "brim"
	loopback   = "127.0.0.1"
)

var compressors = []string{"snappy", "zstd", "none"}

// withDefaults checks every range and fills what was left out.
func (c Config) withDefaults() (Config, error) {
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("check mongod settings: port %d is not in 0 to 65535", c.Port)
	}
	if c.Compressor == "" {
		c.Compressor = compressors[0]
	}
	if !slices.Contains(compressors, c.Compressor) {
		return c, fmt.Errorf("check mongod settings: compressor %q is not one of %s", c.Compressor, strings.Join(compressors, ", "))
	}
	// The bounds of --wiredTigerCacheSizeGB.
	if c.CacheSizeGB != 0 && !(c.CacheSizeGB >= 0.25 && c.CacheSizeGB <= 10_000) {
		return c, fmt.Errorf("check mongod settings: cache of %v GB is not 0 (mongod's choice) or in 0.25 to 10000", c.CacheSizeGB)
	}
	if c.OplogSizeMB < 0 {
		return c, fmt.Errorf("check mongod settings: oplog of %d MB is negative", c.OplogSizeMB)
	}
	if c.OplogSizeMB == 0 {
		c.OplogSizeMB = defaultOplogSizeMB
	}
	if i := c.CheckpointInterval; i < 0 || i > time.Hour || i%time.Second != 0 {
		return c, fmt.Errorf("check mongod settings: checkpoint interval %v is not 0 (mongod's own) or whole seconds up to an hour", i)
	}
	if c.Auth && c.Database == "" {
		return c, errors.New("check mongod settings: authentication without the database that is to be used")
	}
	for name := range c.Parameters {
		if name == "" || strings.ContainsAny(name, "= ") {
			return c, fmt.Errorf("check mongod settings: %q is not the name of a parameter", name)
		}
	}
	if c.StopTimeout < 0 {
		return c, fmt.Errorf("check mongod settings: stop timeout %v is negative", c.StopTimeout)
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = defaultStopTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c, nil
}

// cacheDir is where installed mongods are.
func (c Config) cacheDir() (string, error) {
	if c.CacheDir != "" {
		return filepath.Abs(c.CacheDir)
	}
	dir := os.Getenv("XDG_CACHE_HOME")
	if filepath.IsAbs(dir) {
		return filepath.Join(dir, "brim"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	return filepath.Join(dir, "brim"), nil
}

// args are mongod's arguments.
func (c Config) args(f files, port int) []string {
	args := []string{
		"--dbpath", f.db,
		"--logpath", f.log, "--logappend", "--logRotate", "reopen",
		"--bind_ip", loopback, "--port", strconv.Itoa(port),
		"--nounixsocket",
		// Each accepted connection would be two lines in the log.
		"--quiet",
		"--wiredTigerCollectionBlockCompressor", c.Compressor,
	}
	if c.CacheSizeGB > 0 {
		args = append(args, "--wiredTigerCacheSizeGB", fmt.Sprint(c.CacheSizeGB))
	}
	if c.CheckpointInterval > 0 {
		args = append(args, "--syncdelay", strconv.Itoa(int(c.CheckpointInterval/time.Second)))
	}
	if c.EngineConfig != "" {
		args = append(args, "--wiredTigerEngineConfigString", c.EngineConfig)
	}
	if !c.Standalone {
		args = append(args, "--replSet", replicaSet, "--oplogSize", strconv.Itoa(c.OplogSizeMB))
	}
	parameters := map[string]string{
		// Five minutes of old versions of every bucket would be kept for
		// snapshot reads that nobody makes; they cost a third of the rate.
		"minSnapshotHistoryWindowInSeconds": "0",
		// A recording once a second, up to 200 MB of it, for MongoDB's
		// support. The daemon's own metrics and doctor see the same figures.
		"diagnosticDataCollectionEnabled": "false",
		// No other member could take over, so there is nothing to wait for.
		"shutdownTimeoutMillisForSignaledShutdown": "0",
	}
	if c.Auth {
		args = append(args, "--keyFile", f.key)
		// The users are made with the key; until they are there, nobody else
		// on this machine may make the first one.
		parameters["enableLocalhostAuthBypass"] = "false"
	}
	for name, value := range c.Parameters {
		parameters[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		args = append(args, "--setParameter", name+"="+parameters[name])
	}
	return args
}
