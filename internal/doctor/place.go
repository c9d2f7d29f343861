package doctor

import (
	"path/filepath"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// defaultDBPath is mongod's own where it is told none.
const defaultDBPath = "/data/db"

func getCmdLineOpts() bson.D { return bson.D{{Key: "getCmdLineOpts", Value: 1}} }

// absolute returns the dbPath of a process that works in a folder.
func absolute(folder, path string) string {
	switch {
	case path == "":
		return defaultDBPath
	case filepath.IsAbs(path):
		return path
	default:
		return filepath.Join(folder, path)
	}
}

// sameHost reports whether a server that calls itself host, with or without a
// port, bears this machine's name.
func sameHost(host, name string) bool {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return host != "" && strings.EqualFold(host, name)
}
