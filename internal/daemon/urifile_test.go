package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/config"
)

const fileURI = "mongodb://u:canary@file.example/"

func writeURI(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "uri")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestMongoURIFromFile(t *testing.T) {
	t.Parallel()
	path := writeURI(t, fileURI+"\n")
	inConfig := writeConfig(t, "mongo-uri-file: "+path+"\n")
	for name, s := range map[string]Sources{
		"by flag":                        {Flags: map[string]string{"mongo-uri-file": path}},
		"by the environment":             {Env: []string{"BRIM_MONGO_URI_FILE=" + path}},
		"by the configuration":           {Path: inConfig},
		"a flag wins over a variable":    {Flags: map[string]string{"mongo-uri-file": path}, Env: []string{"BRIM_MONGO_URI=mongodb://env.example/"}},
		"a variable wins over the file":  {Env: []string{"BRIM_MONGO_URI_FILE=" + path}, Path: writeConfig(t, "mongo-uri: mongodb://config.example/\n")},
		"an empty one says nothing else": {Flags: map[string]string{"mongo-uri-file": path, "mongo-uri": ""}},
	} {
		c, err := s.Load()
		require.NoError(t, err, name)
		assert.Equal(t, fileURI, c.MongoURI, name)
	}
	c, err := Sources{Flags: map[string]string{"mongo-uri": "mongodb://flag.example/"}, Path: inConfig}.Load()
	require.NoError(t, err)
	assert.Equal(t, "mongodb://flag.example/", c.MongoURI, "the other way round")
	assert.Empty(t, c.MongoURIFile)
}

func TestInvalidMongoURIFileIsRefused(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for want, s := range map[string]Sources{
		"give one of them":        {Flags: map[string]string{"mongo-uri-file": writeURI(t, fileURI), "mongo-uri": "mongodb://h/"}},
		"--mongo-uri-file: ":      {Flags: map[string]string{"mongo-uri-file": missing}},
		"BRIM_MONGO_URI_FILE: ":   {Env: []string{"BRIM_MONGO_URI_FILE=" + missing}},
		"is empty":                {Flags: map[string]string{"mongo-uri-file": writeURI(t, "\n")}},
		"several lines":           {Flags: map[string]string{"mongo-uri-file": writeURI(t, fileURI+"\n"+fileURI)}},
		"not hold a MongoDB URI":  {Flags: map[string]string{"mongo-uri-file": writeURI(t, "canary")}},
		"is no port":              {Flags: map[string]string{"mongo-uri-file": writeURI(t, "mongodb://u:canary")}},
		"a MongoDB URI and nothi": {Flags: map[string]string{"mongo-uri-file": writeURI(t, strings.Repeat("canary", 20_000))}},
	} {
		_, err := s.Load()
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "canary")
		var misused config.UsageError
		require.ErrorAs(t, err, &misused)
	}
}

func TestErrorsDoNotShowMisplacedPassword(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"mongodb://u:canary", "mongodb://u:canary/", "mongodb://a:1,b:canary/?w=1", "u:canary@h", "mongodb://[::1]:canary/"} {
		err := config.CheckURI(uri)
		require.Error(t, err, uri)
		assert.NotContains(t, err.Error(), "canary", uri)
	}
	for _, uri := range []string{
		"", "mongodb://h", "mongodb://u:p@h:1,i:2,j/d?w=1", "mongodb://[::1]", "mongodb://[::1]:27017/", "mongodb+srv://u:p@cluster.example/",
		"mongodb://%2Ftmp%2Fmongodb-27017.sock/", "mongodb://u:p%40@h/",
	} {
		assert.NoError(t, config.CheckURI(uri), uri)
	}
}
