package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sampleHash = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF"

func TestParse(t *testing.T) {
	t.Parallel()
	got, _, err := parse("f", []byte(`# who may do what
identities:
  - name: north
    hash: `+sampleHash+`
    scopes: [ingest, read]
    sensor_prefix: north-
    created: 2026-11-21T10:00:00Z
    expires: "2027-11-21T10:00:00+01:00"
    quota: {requests_per_second: 3, readings_per_second: 0.5, active_sensors: 0}
  - {name: edge 7, certificate: "dns:edge-7", scopes: [admin]}
`))
	require.NoError(t, err)
	require.Len(t, got, 2)
	north := got[0]
	assert.Equal(t, sampleHash, "sha256:"+strings.ToLower(sampleHash[7:39])+sampleHash[39:])
	assert.Equal(t, []Scope{Ingest, Read}, north.Scopes)
	assert.Equal(t, "north-", north.SensorPrefix)
	assert.True(t, time.Date(2027, 11, 21, 9, 0, 0, 0, time.UTC).Equal(north.Expires))
	assert.Equal(t, Quota{RequestsPerSecond: 3, ReadingsPerSecond: 0.5, NewSensorsPerSecond: unset, ActiveSensors: 0}, north.Quota)
	assert.Equal(t, Quota{3, 0.5, 7, 0}, north.Quota.over(Quota{4, 5, 7, 9}), "what is given wins over the settings, 0 among it")
	assert.Equal(t, "dns:edge-7", got[1].Certificate)
	assert.True(t, got[1].Expires.IsZero())

	for _, empty := range []string{"", "# nothing\n", "---\n", "identities:\n", "identities: []\n", "{}\n"} {
		got, _, err := parse("f", []byte(empty))
		require.NoError(t, err, empty)
		assert.Empty(t, got)
	}
}

func TestParseErrorsNameLineAndAllowedValues(t *testing.T) {
	t.Parallel()
	one := func(lines ...string) string { return "identities:\n  - " + strings.Join(lines, "\n    ") + "\n" }
	hash, scope := "hash: "+sampleHash, "scopes: [read]"
	for _, c := range []struct {
		text string
		want string
	}{
		{"- x", "f:1: the file must hold keys with values; allowed: identities"},
		{"identity: []", `f:1: unknown key identity (did you mean identities?); allowed: identities`},
		{"identities: {}", "f:1: identities: expected a list"},
		{"identities: [x]", "f:1: identities must hold keys with values; allowed: scopes, quota, name, hash,"},
		{"identities: []\nidentities: []", `f:2: mapping key "identities" already defined at line 1`},
		{"identities: []\n---\nidentities: []", "f:2: a second YAML document begins here"},
		{"identities: [", "f:1: did not find expected node content"},
		{"identities:\n\t- x", "f:2: found character that cannot start any token"},
		{one("name: a", hash, scope, "color: red"), `f:5: unknown key identities.color; allowed: scopes, quota, name, hash, certificate,`},
		{one("name: a", "name: b", hash, scope), `f:3: mapping key "name" already defined at line 2`},
		{one(hash, scope), "f:2: an identity: name is missing"},
		{one("name: a", hash), "f:2: a: scopes are missing, as in scopes: [ingest]; allowed: ingest, read, admin"},
		{one("name: a", scope), "f:2: a: either hash or certificate is required"},
		{one("name: a", scope, hash, "certificate: x"), "f:2: a: either hash or certificate is required"},
		{one(`name: ""`, scope, hash), "f:2: name: it has 0 characters; allowed: 1 to 64"},
		{one("name: "+strings.Repeat("ä", 65), scope, hash), "name: it has 65 characters"},
		{one(`name: "a\tb"`, scope, hash), "name: only printable characters"},
		{one(`name: " a"`, scope, hash), "no space at the ends"},
		{one("name: [a]", scope, hash), "f:2: name: expected a single value"},
		{one("name:", scope, hash), "f:2: name: expected a single value"},
		{one("name: a", "scopes: read", hash), "f:3: scopes: expected a list, such as [ingest, read]"},
		{one("name: a", "scopes: []", hash), "f:3: scopes: expected a list"},
		{one("name: a", "scopes: [reed]", hash), `f:3: scopes: unknown scope "reed"; allowed: ingest, read, admin`},
		{one("name: a", "scopes: [[read]]", hash), `scopes: unknown scope ""`},
		{one("name: a", "scopes: [read, read]", hash), "the scope read is given twice"},
		{one("name: a", scope, "hash: 12"), "f:4: hash: expected sha256: and the 64 hexadecimal digits"},
		{one("name: a", scope, "hash: sha256:"+strings.Repeat("g", 64)), "hash: what follows sha256: is not hexadecimal"},
		{one("name: a", scope, "certificate: spiffe://x"), `certificate: "spiffe://x" is not KIND:NAME; allowed kinds are cn, dns, uri and email`},
		{one("name: a", scope, `certificate: "cn:"`), "certificate: the name is empty"},
		{one("name: a", scope, hash, `sensor_prefix: ""`), "sensor_prefix: it is empty; leave it out"},
		{one("name: a", scope, hash, "sensor_prefix: "+strings.Repeat("x", 1025)), "sensor_prefix: it has 1025 bytes; allowed: 1024"},
		{one("name: a", scope, hash, "expires: tomorrow"), `f:5: expires: "tomorrow" is not a time like 2027-11-21T10:00:00Z`},
		{one("name: a", scope, hash, "created: 2026"), "f:5: created: "},
		{one("name: a", scope, hash, "quota: 5"), "f:5: quota must hold keys with values; allowed: requests_per_second, readings_per_second,"},
		{one("name: a", scope, hash, "quota: {readings: 5}"), `f:5: unknown key quota.readings; allowed: requests_per_second, readings_per_second, new_sensors_per_second, active_sensors`},
		{one("name: a", scope, hash, "quota: {readings_per_second: -1}"), `quota.readings_per_second: "-1" is not a number from 0, which is no limit, to 1000000000`},
		{one("name: a", scope, hash, "quota: {active_sensors: 1.5}"), `quota.active_sensors: "1.5" is not a whole number from 0, which is no limit, to 1000000`},
		{one("name: a", scope, hash, "quota: {new_sensors_per_second: .nan}"), "quota.new_sensors_per_second: "},
		{one("name: a", scope, hash, "quota: {new_sensors_per_second: NaN}"), "quota.new_sensors_per_second: "},
		{one("name: a", scope, hash) + one("name: b", scope, hash)[len("identities:\n"):], "f:5: identities: b has the same token or certificate as the identity in line 2"},
		{one("name: a", scope, "certificate: dns:X") + one("name: b", scope, "certificate: dns:x")[len("identities:\n"):], "b has the same token or certificate"},
		{one("name: a", scope, hash) + one("name: a", scope, "certificate: x")[len("identities:\n"):], `f:5: identities: the name "a" is given twice, first in line 2`},
		{"identities:\n  - &a {name: a, hash: h, scopes: *a}", "f:2: the alias *a is not allowed"},
		{one("name: a", "scopes: [&admin read, *admin]", hash), "f:3: the alias *admin is not allowed"},
		{one("name: a", "scopes: [&admin read]", hash), "f:3: the anchor &admin is not allowed"},
		{one("name: &x a", scope, hash), "f:2: the anchor &x is not allowed"},
		{one("&x name: a", scope, hash), "f:2: the anchor &x is not allowed"},
		{one("name: !!str a", scope, hash), "f:2: the tag !!str is not allowed"},
		{one("name: a", "scopes: [!x read]", hash), "f:3: the tag !x is not allowed"},
		{"!!map\nidentities: []\n", "the tag !!map is not allowed"},
	} {
		got, _, err := parse("f", []byte(c.text))
		assert.ErrorContains(t, err, c.want, "%s", c.text)
		assert.Nil(t, got)
	}
	_, _, err := parse("f", []byte(one("name: a", "scopes: [x]", "hash: 1", "expires: y")))
	assert.Len(t, strings.Split(err.Error(), "\n"), 3, "several problems are reported at once")
}

func TestParseErrorsDoNotRepeatTokens(t *testing.T) {
	t.Parallel()
	token, err := NewToken()
	require.NoError(t, err)
	assert.Regexp(t, `^brim_[A-Za-z0-9_-]{43}$`, token)
	for _, text := range []string{
		"identities:\n  - {name: a, scopes: [read], hash: TOKEN}",
		"identities:\n  - {name: TOKEN, scopes: [read], hash: x}",
		"identities:\n  - {name: a, scopes: [TOKEN]}",
		"identities:\n  - {name: a, TOKEN: x}",
		"identities:\n  - {name: a, scopes: [read], certificate: TOKEN:x}",
		"identities:\n  - {name: a, scopes: [read], expires: TOKEN}",
		"identities:\n  - {name: a, scopes: [read], quota: {active_sensors: TOKEN}}",
		"identities:\n  - {name: a, scopes: [read], hash: *TOKEN }",
		"TOKEN",
	} {
		_, _, err := parse("f", []byte(strings.ReplaceAll(text, "TOKEN", token)))
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), token[:12], text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("identities:\n  - {name: a, hash: " + sampleHash + ", scopes: [ingest], quota: {readings_per_second: 1}}\n")
	f.Add("identities:\n  - name: b # c\n    certificate: dns:x\n    scopes: [admin]\n    expires: 2027-11-21T10:00:00Z\n    sensor_prefix: p\n")
	f.Add("identities: &a [*a]\n")
	f.Add("# nothing")
	f.Fuzz(func(t *testing.T, text string) {
		entries, _, err := parse("f", []byte(text))
		if err != nil {
			if len(entries) > 0 || !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("%d entries beside the error %v", len(entries), err)
			}
			return
		}
		// Valid files can be edited, and mean the same afterwards.
		path := filepath.Join(t.TempDir(), "access.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		added := Entry{Name: "added by the test", Scopes: []Scope{Read}, Quota: NoQuota()}
		token, err := NewToken()
		if err != nil {
			t.Fatal(err)
		}
		if err := Add(t.Context(), path, added, HashOf(token)); err != nil {
			if strings.Contains(text, added.Name) {
				return
			}
			t.Fatal(err)
		}
		if err := Remove(t.Context(), path, added.Name); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) != len(entries) {
			t.Fatalf("%d identities became %d", len(entries), len(again))
		}
		for i := range again {
			a, b := again[i], entries[i]
			if !a.Expires.Equal(b.Expires) || !a.Created.Equal(b.Created) {
				t.Fatalf("%v became %v", b, a)
			}
			a.Expires, a.Created, b.Expires, b.Created = time.Time{}, time.Time{}, time.Time{}, time.Time{}
			if joinScopes(a.Scopes) != joinScopes(b.Scopes) || a.credential() != b.credential() || a.Quota != b.Quota || a.Name != b.Name || a.SensorPrefix != b.SensorPrefix {
				t.Fatalf("%v became %v", b, a)
			}
		}
	})
}
