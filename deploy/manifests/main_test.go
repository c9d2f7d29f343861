// Package manifests_test checks compose.yaml, the image and the Kubernetes
// manifests of deploy/ against the daemon. It is a separate module to keep the
// types of Kubernetes and compose files out of Brim's dependencies:
//
//	cd deploy/manifests && go test ./...
package manifests_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var binary brimtest.Binary

// TestMain runs the tests in deploy/, whose files they read.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code)
}

// decode reads a YAML file and rejects unknown keys.
func decode(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(into), path)
}
