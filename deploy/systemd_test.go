package deploy_test

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/brimtest"
)

// unitProgram is where brim.service expects the program.
const unitProgram = "/usr/local/bin/brim"

// A unitFile is the parsed brim.service.
type unitFile struct {
	t    testing.TB
	text string
	keys map[string][]string // of all sections
}

func readUnit(t testing.TB) *unitFile {
	t.Helper()
	text, err := os.ReadFile("systemd/brim.service")
	require.NoError(t, err)
	u := &unitFile{t: t, text: string(text), keys: make(map[string][]string)}
	options, err := unit.DeserializeOptions(bytes.NewReader(text))
	require.NoError(t, err)
	for _, o := range options {
		u.keys[o.Name] = append(u.keys[o.Name], o.Value)
	}
	return u
}

// one returns the value of a key that occurs once.
func (u *unitFile) one(key string) string {
	u.t.Helper()
	require.Len(u.t, u.keys[key], 1, key)
	return u.keys[key][0]
}

func (u *unitFile) span(key string) time.Duration {
	u.t.Helper()
	d, err := time.ParseDuration(u.one(key))
	require.NoError(u.t, err, key)
	return d
}

// exampleConfig is brim.yaml; opened: with its commented-out settings in effect.
func exampleConfig(t testing.TB, opened bool) string {
	t.Helper()
	text, err := os.ReadFile("systemd/brim.yaml")
	require.NoError(t, err)
	if !opened {
		return string(text)
	}
	lines := regexp.MustCompile(`(?m)^# ([a-z-]+: \S)`)
	require.Len(t, lines.FindAllString(string(text), -1), 6, "lines that can be opened")
	return lines.ReplaceAllString(string(text), "$1")
}

// TestUnitIsVerified: systemd finds nothing wrong where the program is
// installed, and does find an unknown key.
func TestUnitIsVerified(t *testing.T) {
	t.Parallel()
	analyze := brimtest.Program(t, "systemd-analyze")
	verify := func(text string) string {
		path := filepath.Join(t.TempDir(), "brim.service")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput()
		if err != nil && len(out) == 0 {
			return err.Error()
		}
		return string(out)
	}
	installed := strings.ReplaceAll(readUnit(t).text, unitProgram, binary.Path(t))
	assert.Empty(t, verify(installed))
	assert.Contains(t, verify(strings.Replace(installed, "PrivateTmp=", "PrivateTemp=", 1)), "PrivateTemp")
	assert.Contains(t, verify(strings.ReplaceAll(installed, binary.Path(t), "/nonexistent/brim")), "/nonexistent/brim")

	path := filepath.Join(t.TempDir(), "brim.service")
	require.NoError(t, os.WriteFile(path, []byte(installed), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=15", "--no-pager", path).CombinedOutput()
	assert.NoError(t, err, "the unit is exposed by more than 1.5 of 10:\n%s", out)
}

// TestUnitFitsTheDaemon: both agree on the notifications to systemd and on paths.
func TestUnitFitsTheDaemon(t *testing.T) {
	t.Parallel()
	u := readUnit(t)
	config := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte(exampleConfig(t, true)), 0o600))
	set := binary.Settings(t, nil, "--config", config)

	assert.Equal(t, "/var/lib/"+u.one("StateDirectory"), set["data-dir"])
	for _, key := range []string{"access-file", "tls-cert", "tls-key"} {
		assert.Equal(t, "/etc/"+u.one("ConfigurationDirectory"), filepath.Dir(set[key]), key)
	}
	stop, err := time.ParseDuration(set["stop-timeout"])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, u.span("TimeoutStopSec"), stop+10*time.Second, "what the daemon asks for when it stops")
	connections, err := strconv.Atoi(set["max-connections"])
	require.NoError(t, err)
	files, err := strconv.Atoi(u.one("LimitNOFILE"))
	require.NoError(t, err)
	assert.Greater(t, files, 2*connections+768)
	assert.Greater(t, u.span("WatchdogSec"), 3*5*time.Second, "the daemon beats each 5 s, or three times within")

	users, err := os.ReadFile("systemd/brim.sysusers")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^u `+u.one("User")+` - "[^"]+" `+set["data-dir"]+`$`, string(users))
	assert.Equal(t, u.one("User"), u.one("Group"))

	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, path := range []string{unitProgram, "/etc/brim/brim.yaml", "/etc/brim/mongo-uri", "/etc/sysusers.d/brim.conf", "/etc/systemd/system/brim.service"} {
		assert.Contains(t, string(readme), path, "how it is installed")
	}
	name, source, _ := strings.Cut(u.one("LoadCredential"), ":")
	assert.Equal(t, "/etc/brim/mongo-uri", source)
	assert.Equal(t, "BRIM_MONGO_URI_FILE=%d/"+name, u.one("Environment"))
}

// TestExampleConfigIsCorrect as it is, and with the commented-out lines.
func TestExampleConfigIsCorrect(t *testing.T) {
	t.Parallel()
	for _, opened := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "brim.yaml")
		require.NoError(t, os.WriteFile(path, []byte(exampleConfig(t, opened)), 0o600))
		out, err := binary.Run(t, nil, "config", "check", path)
		assert.NoError(t, err, out)
	}
}

// TestUnitsCommandsRun runs the unit's start, reload and stop commands as
// systemd does, with other paths and a notify socket.
func TestUnitsCommandsRun(t *testing.T) {
	t.Parallel()
	u, dir := readUnit(t), t.TempDir()
	authority := accesstest.NewAuthority(t, "test")
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	_, err := binary.Run(t, nil, "token", "create", "ops", "--scope", "admin", "--access-file", filepath.Join(dir, "access.yaml"))
	require.NoError(t, err)
	accesstest.File(t, dir, "mongo-uri", []byte("mongodb://127.0.0.1:1/\n"))
	elsewhere := strings.NewReplacer(unitProgram, binary.Path(t), "/etc/brim/tls.pem", cert, "/etc/brim/tls.key", key, "/etc/brim", dir, "/var/lib/brim", filepath.Join(dir, "data"),
		":8430", "127.0.0.1:0", ":8431", "127.0.0.1:0", ":8432", "127.0.0.1:0", "%d", dir)
	accesstest.File(t, dir, "brim.yaml", []byte(elsewhere.Replace(exampleConfig(t, true))))
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()

	command := strings.Fields(elsewhere.Replace(u.one("ExecStart")))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(brimtest.Env(), elsewhere.Replace(u.one("Environment")), "NOTIFY_SOCKET="+socket)
	brim := brimtest.Start(t, cmd, syscall.SIGKILL)
	brim.AwaitLog("journal is open")
	said := ""
	require.NoError(t, manager.SetReadDeadline(time.Now().Add(brimtest.Patience)))
	hears := func(word string) {
		t.Helper()
		for buffer := make([]byte, 1<<16); !strings.Contains(said, word); {
			n, err := manager.Read(buffer)
			require.NoError(t, err, "waiting for %s after %q", word, said)
			said = string(buffer[:n])
		}
	}
	hears("READY=1")
	admin := brim.AwaitLog("listening")["admin"].(string)
	_, _, err = brimtest.Ask(http.MethodGet, "https://"+admin+"/readyz", "")
	require.ErrorContains(t, err, "unknown authority", "it speaks TLS")

	require.Len(t, u.keys["ExecReload"], 2)
	for _, reload := range u.keys["ExecReload"] {
		command := strings.Fields(strings.Replace(elsewhere.Replace(reload), "$MAINPID", strconv.Itoa(brim.Cmd.Process.Pid), 1))
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	hears("RELOADING=1")
	hears("READY=1")
	brim.Signal(syscall.SIGTERM)
	hears("STOPPING=1")
	assert.Zero(t, brim.Wait())
}
