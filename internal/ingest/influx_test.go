package ingest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInfluxQLIsAnsweredAsClientsExpect(t *testing.T) {
	t.Parallel()
	srv, _ := newTestServer(t)
	for statement, want := range map[string]string{
		`CREATE DATABASE "telegraf"`:                   `{"results":[{"statement_id":0}]}`,
		`create database d WITH DURATION 1d NAME "x";`: `{"results":[{"statement_id":0}]}`,
		"SHOW DATABASES; CREATE DATABASE d":            `{"results":[{"statement_id":0,"series":[{"name":"databases","columns":["name"],"values":[["readings"],["mem"]]}]},{"statement_id":1}]}`,
	} {
		w := post(t, srv, "/query", "application/x-www-form-urlencoded", "q="+url.QueryEscape(statement))
		assert.Equal(t, http.StatusOK, w.Code, statement)
		assert.JSONEq(t, want, w.Body.String(), statement)
		w = serve(t, srv, "GET", "/query?db=d&q="+url.QueryEscape(statement))
		assert.JSONEq(t, want, w.Body.String(), statement)
	}
	for statement, says := range map[string]string{
		"SELECT * FROM cpu":                    `\"SELECT * FROM cpu\" is not supported; allowed: CREATE DATABASE and SHOW DATABASES`,
		"CREATE DATABASE":                      "is not supported",
		"":                                     "missing required parameter",
		";;":                                   "missing required parameter",
		strings.Repeat("x", maxStatements+100): "too long",
	} {
		w := post(t, srv, "/query", "application/x-www-form-urlencoded", "q="+url.QueryEscape(statement))
		assert.Equal(t, http.StatusBadRequest, w.Code)
		assert.Contains(t, w.Body.String(), says)
		assert.Contains(t, w.Body.String(), `"error":`)
	}
	assert.Equal(t, http.StatusMethodNotAllowed, serve(t, srv, "PUT", "/query").Code)
}

func TestEveryBucketExists(t *testing.T) {
	t.Parallel()
	srv, _ := newTestServer(t)
	w := serve(t, srv, "GET", "/api/v2/buckets?name=b&org=o")
	assert.JSONEq(t, `{"buckets":[{"id":"af63df4c8601f1a5","orgID":"cbf29ce484222325","type":"user","name":"b","retentionRules":[]}],"links":{"self":"/api/v2/buckets"}}`, w.Body.String())
	w = serve(t, srv, "GET", "/api/v2/buckets")
	assert.Contains(t, w.Body.String(), `"name":"readings"`)
	assert.Contains(t, w.Body.String(), `"name":"mem"`)
}

func TestLinesOfInfluxDB3(t *testing.T) {
	t.Parallel()
	srv, j := newTestServer(t)
	// One instant in all units, and one that is none of them.
	for query, stamp := range map[string]string{
		"": "1795255200", "precision=auto": "1795255200123", "precision=auto&no_sync=true": "1795255200123456", "db=d": "1795255200123456789",
		"precision=second": "1795255200", "precision=millisecond": "1795255200123", "precision=microsecond": "1795255200123456", "precision=nanosecond&accept_partial=false": "1795255200123456789",
		"precision=ns&org=o": "1795255200123456789",
	} {
		w := post(t, srv, "/api/v3/write_lp?"+query, "", "m t=1 "+stamp)
		require.Equal(t, http.StatusNoContent, w.Code, "%s: %s", query, w.Body)
		assert.EqualValues(t, 1795255200, j.readings()[0].Time.Unix(), query)
		j.batches = nil
	}
	w := post(t, srv, "/api/v3/write_lp?db=d", "", "m t=1\nm t=\nm t=2")
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), `"error":"partial write of line protocol occurred: partial write: 1 of 3 lines were refused`)
	assert.Contains(t, w.Body.String(), `"data":[{"line_number":2,"error_message":"malformed: `)
	assert.Len(t, j.readings(), 2)
	w = post(t, srv, "/api/v3/write_lp?db=d&accept_partial=false", "", "m t=1\nm t=\nm t=2")
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), `"error":"parsing failed for write_lp endpoint: 1 of 3 lines are invalid, nothing was accepted (accept_partial=false); line 2: `)
	assert.Len(t, j.readings(), 2)
	for query, says := range map[string]string{
		"precision=m": "allowed: auto, nanosecond", "accept_partial=2": "accept_partial is", "no_sync=x": "no_sync is", "bucket=b": "unknown",
	} {
		w := post(t, srv, "/api/v3/write_lp?"+query, "", "m t=1")
		assert.Equal(t, http.StatusBadRequest, w.Code, query)
		assert.Contains(t, w.Body.String(), says)
	}
}

// TestDotsInLines: Telegraf sends them. In JSON they are refused.
func TestDotsInLines(t *testing.T) {
	t.Parallel()
	for given, want := range map[byte]string{0: "_", '-': "-"} {
		srv, j := newTestServer(t, func(c *Config) { c.MapDots = given })
		w := post(t, srv, "/write", "", "m,a.b=x c.d=1")
		require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		assert.Equal(t, []string{"a" + want + "b"}, []string{j.readings()[0].Tags[0].Name})
		assert.Equal(t, "c"+want+"d", j.readings()[0].Fields[0].Name)
	}
	srv, _ := newTestServer(t)
	assert.Equal(t, http.StatusBadRequest, post(t, srv, "/v1/readings", "", `{"sensorId":"s","fields":{"a.b":1}}`).Code)
}
