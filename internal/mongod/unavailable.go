package mongod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// ErrUnavailable is in every error that says that this machine lacks what a
// mongod needs, as opposed to one that went wrong. Its text says what is
// missing and what can be done.
var ErrUnavailable = errors.New("no mongod can be had on this machine")

// advice are the ways on that need nothing of what was missing.
const advice = `
  - install MongoDB 6.0 or newer, so that mongod is on PATH, or name it with --mongod-bin (BRIM_MONGOD_BIN)` + elsewhere

// elsewhere are those that need no mongod of the daemon's own.
const elsewhere = `
  - run it in Docker:
      docker run -d --name brim-mongo -p 127.0.0.1:27017:27017 mongo:8 --replSet rs0
      docker exec brim-mongo mongosh --quiet --eval 'rs.initiate({_id:"rs0",members:[{_id:0,host:"127.0.0.1:27017"}]})'
    and pass --mongo-uri 'mongodb://127.0.0.1:27017/?replicaSet=rs0'
  - or pass --mongo-uri of a MongoDB that you have`

// unavailable says what is missing, then what to do.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w; otherwise:%s", ErrUnavailable, fmt.Errorf(format, args...), advice)
}

// packages name, for a shared library of the pinned mongod, the package that
// has it on Debian and Ubuntu, and on Fedora and its kin.
var packages = map[string][2]string{
	"libcurl.so.4":   {"libcurl4", "libcurl"},
	"libssl.so.3":    {"libssl3", "openssl-libs"},
	"libcrypto.so.3": {"libssl3", "openssl-libs"},
	"liblzma.so.5":   {"liblzma5", "xz-libs"},
	"libresolv.so.2": {"libc6", "glibc"},
	"libm.so.6":      {"libc6", "glibc"},
	"libgcc_s.so.1":  {"libgcc-s1", "libgcc"},
}

var notFoundLine = regexp.MustCompile(`(?m)^\s*(\S+) => not found`)

// missingLibraries asks the loader, which lists all of them in this mode and
// runs nothing; in an ordinary start it names only the first.
func missingLibraries(ctx context.Context, path string) []string {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = append(os.Environ(), "LD_TRACE_LOADED_OBJECTS=1")
	cmd.WaitDelay = time.Second
	// With a library missing it ends with an error, which is not news here.
	output, _ := cmd.CombinedOutput()
	var missing []string
	for _, match := range notFoundLine.FindAllSubmatch(output, -1) {
		missing = append(missing, string(match[1]))
	}
	return missing
}

// missingText says which packages to install.
func missingText(libraries []string) string {
	noun := "the shared library " + libraries[0] + " is"
	if len(libraries) > 1 {
		noun = "the shared libraries " + strings.Join(libraries, ", ") + " are"
	}
	text := noun + " missing on this machine"
	var debian, fedora []string
	for _, library := range libraries {
		if names, ok := packages[library]; ok {
			debian, fedora = appendNew(debian, names[0]), appendNew(fedora, names[1])
		}
	}
	if len(debian) == 0 {
		return text + "; install what has it"
	}
	return fmt.Sprintf("%s; install with apt-get install %s (Debian, Ubuntu) or dnf install %s (Fedora, RHEL)",
		text, strings.Join(debian, " "), strings.Join(fedora, " "))
}

func appendNew(list []string, item string) []string {
	for _, have := range list {
		if have == item {
			return list
		}
	}
	return append(list, item)
}
