package compact

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/doctor"
)

const mib = 1 << 20

func idle() Load { return Load{Over: 2 * time.Second} }

func busy() Load { return Load{Over: 2 * time.Second, Writes: 2000} }

// fragmented is a member of which a quarter is free.
func fragmented(host, role string, load Load) *Member {
	return &Member{Host: host, Role: role, Sizes: Sizes{File: 400 * mib, Free: 100 * mib}, Load: load}
}

// bounded decides without a server.
func bounded() *Compactor {
	return &Compactor{config: Config{FreeAtLeast: 0.2, LeastBytes: 64 * mib, Passes: 4}}
}

func set(primary Load) *Deployment {
	return &Deployment{Set: "rs", Members: []*Member{
		fragmented("a:1", RolePrimary, primary), fragmented("b:1", RoleSecondary, busy()), fragmented("c:1", RoleSecondary, idle()),
	}}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	alone := func(role string, load Load) *Deployment {
		return &Deployment{Members: []*Member{fragmented("a:1", role, load)}}
	}
	away := set(idle())
	away.Members[1].Unseen = "away"
	running := set(idle())
	running.Members[2].Running = "operation 7"
	little := set(idle())
	little.Members[1].Sizes.Free = 63 * mib
	sparse := set(idle())
	sparse.Members[1].Sizes.File = 600 * mib
	indexes := alone(RoleStandalone, idle())
	indexes.Members[0].Sizes = Sizes{File: 100 * mib, IndexFile: 200 * mib, IndexFree: 70 * mib}
	for name, test := range map[string]struct {
		deployment *Deployment
		choice     Selection
		todo       []string
		left       map[string]Reason
	}{
		"the secondaries of a set":            {set(idle()), Selection{}, []string{"b:1", "c:1"}, map[string]Reason{"a:1": Primary}},
		"force asks for no primary":           {set(busy()), Selection{Force: true}, []string{"b:1", "c:1"}, map[string]Reason{"a:1": Primary}},
		"all, the primary last":               {set(idle()), Selection{All: true}, []string{"b:1", "c:1", "a:1"}, nil},
		"all, but no busy primary":            {set(busy()), Selection{All: true}, []string{"b:1", "c:1"}, map[string]Reason{"a:1": Busy}},
		"all, also a busy primary":            {set(busy()), Selection{All: true, Force: true}, []string{"b:1", "c:1", "a:1"}, nil},
		"one member":                          {set(busy()), Selection{Member: "c:1"}, []string{"c:1"}, nil},
		"a primary that has nothing to do":    {set(idle()), Selection{Member: "a:1"}, []string{"a:1"}, nil},
		"a busy primary":                      {set(busy()), Selection{Member: "a:1"}, nil, map[string]Reason{"a:1": Busy}},
		"a busy primary by force":             {set(busy()), Selection{Member: "a:1", Force: true}, []string{"a:1"}, nil},
		"a server that is alone":              {alone(RoleStandalone, idle()), Selection{}, []string{"a:1"}, nil},
		"a busy server that is alone":         {alone(RolePrimary, busy()), Selection{}, nil, map[string]Reason{"a:1": Busy}},
		"a busy standalone by force":          {alone(RoleStandalone, busy()), Selection{Force: true}, []string{"a:1"}, nil},
		"a server that tells nothing is busy": {alone(RolePrimary, Load{}), Selection{}, nil, map[string]Reason{"a:1": Busy}},
		"an unreachable member":               {away, Selection{}, []string{"c:1"}, map[string]Reason{"a:1": Primary, "b:1": Unseen}},
		"none beside one that is compacted":   {running, Selection{}, nil, map[string]Reason{"a:1": Primary, "b:1": Running, "c:1": Running}},
		"too few bytes":                       {little, Selection{}, []string{"c:1"}, map[string]Reason{"a:1": Primary, "b:1": NoGain}},
		"too small a share":                   {sparse, Selection{}, []string{"c:1"}, map[string]Reason{"a:1": Primary, "b:1": NoGain}},
		"no force where nothing is to be had": {little, Selection{Member: "b:1", Force: true}, nil, map[string]Reason{"b:1": NoGain}},
		"free space in indexes":               {indexes, Selection{}, []string{"a:1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			todo, left, err := bounded().Choose(test.deployment, test.choice)
			require.NoError(t, err)
			var hosts []string
			for _, m := range todo {
				hosts = append(hosts, m.Host)
			}
			assert.Equal(t, test.todo, hosts)
			kinds := make(map[string]Reason)
			for _, l := range left {
				kinds[l.Member] = l.Kind
				assert.NotEmpty(t, l.Why)
			}
			if test.left == nil {
				test.left = map[string]Reason{}
			}
			assert.Equal(t, test.left, kinds)
		})
	}
}

func TestRefusalHasMeasurementsAndAdvice(t *testing.T) {
	t.Parallel()
	_, left, err := bounded().Choose(set(busy()), Selection{Member: "a:1"})
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, "it is busy: over 2.0 s, 2000 documents/s are written", left[0].Why)
	assert.Contains(t, left[0].Do, "replSetStepDown")
	assert.Contains(t, left[0].Do, "--force")
	assert.Contains(t, left[0].Do, "3.5 times")

	_, left, err = bounded().Choose(set(busy()), Selection{})
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Contains(t, left[0].Why, "100 MiB are free")
	assert.Contains(t, left[0].Do, "--member a:1 --force, since it is busy (2000 documents/s are written)")
}

func TestRefusalSaysToWaitWhileDeletedDataIsNotFree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sizes Sizes
		do    string // a part of it
	}{
		"deleted, and no checkpoint since": {Sizes{Data: 60 * mib, File: 100 * mib, Removed: 1}, "at least 40 MiB of the file is deleted data, which becomes reusable after the next checkpoint"},
		"all of it":                        {Sizes{File: 100 * mib, Removed: 9}, "at least 100 MiB of the file"},
		"compressed too well to be seen":   {Sizes{Data: 400 * mib, File: 100 * mib, Removed: 9}, "data that was deleted within the last minutes becomes reusable after the next checkpoint"},
		"nothing was deleted":              {Sizes{Data: 400 * mib, File: 100 * mib}, ""},
		"what pages take besides":          {Sizes{Data: 90 * mib, File: 100 * mib}, ""},
		"free by now":                      {Sizes{Data: 60 * mib, File: 100 * mib, Free: 40 * mib}, ""},
	} {
		m := &Member{Host: "a:1", Role: RoleStandalone, Sizes: test.sizes, Load: idle()}
		_, left, err := bounded().Choose(&Deployment{Members: []*Member{m}}, Selection{})
		require.NoError(t, err)
		require.Len(t, left, 1, name)
		assert.Equal(t, NoGain, left[0].Kind, name)
		if test.do == "" {
			assert.Empty(t, left[0].Do, name)
		} else {
			assert.Contains(t, left[0].Do, test.do, name)
			assert.Contains(t, left[0].Do, "run this again", name)
		}
	}
}

func TestUnknownMemberIsRefusedWithAListOfMembers(t *testing.T) {
	t.Parallel()
	_, _, err := bounded().Choose(set(idle()), Selection{Member: "a:2"})
	require.ErrorIs(t, err, ErrNoMember)
	assert.ErrorContains(t, err, `"a:2"; members are a:1, b:1, c:1`)
}

func TestBusy(t *testing.T) {
	t.Parallel()
	signal := func(name string, class doctor.Class) Load {
		l := idle()
		l.Signals = []doctor.Signal{{Name: name, Title: name, Class: class}}
		return l
	}
	reads := idle()
	reads.Reads = 50
	few := idle()
	few.Writes, few.Reads, few.Applied = 49, 49, 5000
	for name, test := range map[string]struct {
		load Load
		busy bool
	}{
		"idle":                         {idle(), false},
		"writes":                       {busy(), true},
		"reads":                        {reads, true},
		"a little of both":             {few, false},
		"unseen":                       {Load{}, true},
		"a disk that is half busy":     {signal(signalDisk, doctor.Degrading), true},
		"another signal that degrades": {signal("cache_dirty", doctor.Degrading), false},
		"a bottleneck":                 {signal("cache_dirty", doctor.Bottleneck), true},
		"a signal that cannot be seen": {signal(signalDisk, doctor.Unknown), false},
		"a signal that stays healthy":  {signal(signalDisk, doctor.Healthy), false},
		"a checkpoint that takes long": {signal("checkpoint_duration", doctor.Bottleneck), true},
	} {
		assert.Equal(t, test.busy, len(test.load.Busy()) > 0, name)
	}
}

func TestDoctorHasTheSignals(t *testing.T) {
	t.Parallel()
	client, err := mongo.Connect()
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	monitor, err := doctor.New(doctor.Config{Database: client.Database("d")})
	require.NoError(t, err)
	var names []string
	for _, s := range monitor.Signals() {
		names = append(names, s.Name)
	}
	assert.Subset(t, names, []string{signalDisk, signalFragmentation})
}

func TestUnknownLoadIsNull(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(Load{Writes: math.NaN(), Applied: math.NaN(), Reads: 3})
	require.NoError(t, err)
	assert.JSONEq(t, `{"watched_seconds":0,"documents_written_per_second":null,"documents_replicated_per_second":null,"queries_per_second":3,
		"busy":true,"busy_because":["how busy it is cannot be seen: the role clusterMonitor permits it"]}`, string(b))
}

func TestVersionsWithATargetOfFreeSpace(t *testing.T) {
	t.Parallel()
	for version, takes := range map[string]bool{
		"6.0.5": false, "7.0.14": false, "7.2.9": false, "7.3.0": true, "8.0.0-rc1": true, "10.1.0": true, "": false, "8": false, "x.y": false,
	} {
		assert.Equal(t, takes, takesFreeTarget(version), version)
	}
}

func TestRefusalsAreExplained(t *testing.T) {
	t.Parallel()
	primary, secondary := &Member{Role: RolePrimary, Version: "6.0.5"}, &Member{Role: RoleSecondary}
	namespace := mongo.CommandError{Message: "can't compact a system namespace"} // 6.0 gives no code
	err := explain(namespace, primary)
	require.ErrorIs(t, err, ErrTimeSeries)
	require.ErrorContains(t, err, "6.0.5")
	require.ErrorIs(t, explain(mongo.CommandError{Code: codeInvalidNamespace, Message: "no"}, primary), ErrTimeSeries)
	require.ErrorContains(t, explain(mongo.CommandError{Code: codeUnauthorized, Message: "no"}, primary), "dbAdmin")
	require.ErrorContains(t, explain(mongo.CommandError{Message: "will not run compact on an active replica set primary"}, secondary), "it has become the primary")
	plain := errors.New("gone")
	require.Equal(t, plain, explain(plain, primary))
}
