package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/store"
)

// Roles of members. For other members of a replica set, the role is MongoDB's name of their state,
// in lower case.
const (
	RolePrimary    = "primary"
	RoleSecondary  = "secondary"
	RoleStandalone = "standalone"
	roleUnknown    = "unknown"
	roleArbiter    = "arbiter"
)

// A Deployment has the servers with the collection.
type Deployment struct {
	Set        string    `json:"set,omitempty"` // name of the replica set; empty: a standalone server
	Collection string    `json:"collection"`    // database.collection, the underlying collection
	Members    []*Member `json:"members"`       // in the order of the set's configuration, without arbiters
	// Old is the collection that an earlier release left behind; empty if there is none.
	Old string `json:"old,omitempty"`
}

// A Member is one server that has the collection.
type Member struct {
	Host    string `json:"member"` // host:port
	Role    string `json:"role"`
	Version string `json:"version,omitempty"`
	Unseen  string `json:"unseen,omitempty"`  // why nothing more is known about it
	Running string `json:"running,omitempty"` // describes another compaction of the collection that is running there
	Sizes   Sizes  `json:"sizes"`
	Load    Load   `json:"load"`

	client *mongo.Client
}

// Seen reports whether the member answered and has the collection.
func (m *Member) Seen() bool { return m.Unseen == "" }

// Errors of Inspect.
var (
	// ErrAway means that no server answers.
	ErrAway = errors.New("no server of MongoDB answers")
	// ErrNoCollection means that no member has the collection.
	ErrNoCollection = errors.New("there is no such collection")
	// ErrSharded means that the server is a mongos, which has no data of its own.
	ErrSharded = errors.New("this is a mongos, which keeps no data: compact each shard, by its own --mongo-uri")
)

// hello is the reply to the command hello.
type hello struct {
	SetName           string   `bson:"setName"`
	Me                string   `bson:"me"`
	Hosts             []string `bson:"hosts"`
	Passives          []string `bson:"passives"`
	Arbiters          []string `bson:"arbiters"`
	IsWritablePrimary bool     `bson:"isWritablePrimary"`
	Secondary         bool     `bson:"secondary"`
	ArbiterOnly       bool     `bson:"arbiterOnly"`
	Message           string   `bson:"msg"`
	LastWrite         struct {
		OpTime struct {
			TS bson.Timestamp `bson:"ts"`
		} `bson:"opTime"`
	} `bson:"lastWrite"`
}

func (h hello) role() string {
	switch {
	case h.SetName == "" && h.IsWritablePrimary:
		return RoleStandalone
	case h.IsWritablePrimary:
		return RolePrimary
	case h.Secondary:
		return RoleSecondary
	case h.ArbiterOnly:
		return roleArbiter
	default:
		return roleUnknown
	}
}

func askHello(ctx context.Context, client *mongo.Client, whom *readpref.ReadPref) (hello, error) {
	ctx, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	var h hello
	err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}, options.RunCmd().SetReadPreference(whom)).Decode(&h)
	if err != nil {
		return h, fmt.Errorf("ask a server for its role: %w", err)
	}
	return h, nil
}

// Inspect finds the members, connects to each, reads the collection's sizes, and measures the
// load. Information that a member does not provide is not an error.
func (c *Compactor) Inspect(ctx context.Context) (*Deployment, error) {
	h, err := askHello(ctx, c.config.Client, readpref.Nearest())
	if err != nil && mongo.IsNetworkError(err) {
		// The nearest member has just disappeared; the driver knows that now.
		h, err = askHello(ctx, c.config.Client, readpref.Nearest())
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %s", ErrAway, brief(err))
	case h.Message == "isdbgrid":
		return nil, ErrSharded
	}
	d := &Deployment{Set: h.SetName, Collection: c.config.Database + "." + c.config.Collection}
	if d.Members, err = c.members(ctx, h); err != nil {
		return nil, err
	}
	var looks sync.WaitGroup
	for _, m := range d.Members {
		looks.Go(func() { c.inspectMember(ctx, m) })
	}
	looks.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	has := func(m *Member) bool { return m.Sizes.File > 0 }
	lacks := func(m *Member) bool { return m.Unseen == unseenMissing }
	if slices.ContainsFunc(d.Members, lacks) && !slices.ContainsFunc(d.Members, has) {
		return nil, fmt.Errorf("find %s: %w", d.Collection, ErrNoCollection)
	}
	d.Old = c.old(ctx)
	return d, nil
}

// members returns the members with data, each with a connection.
func (c *Compactor) members(ctx context.Context, h hello) ([]*Member, error) {
	hosts := c.configured(ctx)
	if hosts == nil {
		hosts = slices.Concat(h.Hosts, h.Passives)
	}
	if len(hosts) < 2 {
		// The only server is the one in the URI, whatever name it has for itself.
		client, host, err := c.direct("")
		if err != nil {
			return nil, err
		}
		if len(hosts) == 1 {
			host = hosts[0]
		}
		return []*Member{{Host: cmp.Or(h.Me, host), Role: h.role(), client: client}}, nil
	}
	members := make([]*Member, len(hosts))
	for i, host := range hosts {
		client, _, err := c.direct(host)
		if err != nil {
			return nil, err
		}
		members[i] = &Member{Host: host, Role: roleUnknown, client: client}
	}
	return members, nil
}

// configured returns all members with data, including hidden ones; nil if the user lacks the
// privilege, or if there is no replica set.
func (c *Compactor) configured(ctx context.Context) (hosts []string) {
	for _, m := range replicaSet(ctx, c.config.Client) {
		if m.State != "ARBITER" {
			hosts = append(hosts, m.Name)
		}
	}
	return hosts
}

// setMember is a member of a replica set as another one sees it.
type setMember struct {
	Name  string `bson:"name"`
	State string `bson:"stateStr"`
	Self  bool   `bson:"self"`
}

// replicaSet returns the members of the set; nil if the user lacks the privilege, or if there is
// none.
func replicaSet(ctx context.Context, client *mongo.Client) []setMember {
	var answer struct {
		Members []setMember `bson:"members"`
	}
	if err := ask(ctx, client.Database("admin"), bson.D{{Key: "replSetGetStatus", Value: 1}}, &answer); err != nil {
		return nil
	}
	return answer.Members
}

// Why a member is not inspected any further.
const (
	unseenMissing = "it does not have the collection"
	unseenAway    = "it cannot be reached: "
	unseenState   = "it is neither primary nor secondary at present: "
)

// inspectMember fills in the information about a member.
func (c *Compactor) inspectMember(ctx context.Context, m *Member) {
	h, err := askHello(ctx, m.client, readpref.Nearest())
	if err != nil {
		m.Unseen = unseenAway + brief(err)
		return
	}
	m.Role = h.role()
	if m.Role == roleUnknown {
		m.Role = state(ctx, m)
		m.Unseen = unseenState + m.Role
		return
	}
	var build struct {
		Version string `bson:"version"`
	}
	if err := ask(ctx, m.client.Database("admin"), bson.D{{Key: "buildInfo", Value: 1}}, &build); err == nil {
		m.Version = build.Version
	}
	m.Sizes, err = c.sizes(ctx, m)
	switch {
	case errors.Is(err, ErrNoCollection):
		m.Unseen = unseenMissing
		return
	case err != nil:
		m.Unseen = brief(err)
		return
	}
	m.Running = c.running(ctx, m)
	m.Load = c.load(ctx, m)
}

// state returns the state of a member that is neither primary nor secondary.
func state(ctx context.Context, m *Member) string {
	for _, one := range replicaSet(ctx, m.client) {
		if one.Self {
			return strings.ToLower(one.State)
		}
	}
	return roleUnknown
}

// keptSuffix is the suffix of the original collection, which `brim recompress` and `brim migrate`
// of an earlier release kept.
const keptSuffix = ".brim_old"

// old returns the collection that they left behind; empty if there is none.
func (c *Compactor) old(ctx context.Context) string {
	name := strings.TrimPrefix(c.config.Collection, BucketsOf("")) + keptSuffix
	ctx, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	names, err := c.config.Client.Database(c.config.Database).ListCollectionNames(ctx, bson.D{{Key: "name", Value: name}})
	if err != nil || len(names) == 0 {
		return ""
	}
	return name
}

// operation is a running operation, as $currentOp reports it.
type operation struct {
	ID      any   `bson:"opid"`
	Micros  int64 `bson:"microsecs_running"`
	Command struct {
		Comment any `bson:"comment"`
	} `bson:"command"`
}

// operations returns the compactions of the collection that are running on a member and visible to
// the user.
func (c *Compactor) operations(ctx context.Context, m *Member) ([]operation, error) {
	ctx, cancel := context.WithTimeout(ctx, directTimeout)
	defer cancel()
	var found []operation
	for _, all := range []bool{true, false} { // those of other users need the privilege inprog
		cursor, err := m.client.Database("admin").Aggregate(ctx, mongo.Pipeline{
			{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: all}}}},
			{{Key: "$match", Value: bson.D{{Key: "command.compact", Value: c.config.Collection}, {Key: "command.$db", Value: c.config.Database}}}},
			{{Key: "$project", Value: bson.D{{Key: "opid", Value: 1}, {Key: "microsecs_running", Value: 1}, {Key: "command.comment", Value: 1}}}},
		})
		if err == nil {
			err = cursor.All(ctx, &found)
		}
		if err == nil {
			return found, nil
		}
		if !store.HasCode(err, codeUnauthorized) {
			return nil, fmt.Errorf("ask %s for its operations: %w", m.Host, err)
		}
	}
	return nil, nil
}

const codeUnauthorized = 13

// running describes a compaction of the collection that is running on a member; empty if there is
// none.
func (c *Compactor) running(ctx context.Context, m *Member) string {
	found, err := c.operations(ctx, m)
	if err != nil || len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("operation %v has been compacting it for %s", found[0].ID, (time.Duration(found[0].Micros) * time.Microsecond).Round(time.Millisecond))
}

// brief returns an error's text without the driver's description of the deployment.
func brief(err error) string {
	text := err.Error()
	if i := strings.Index(text, "Last error: "); i >= 0 {
		text = strings.TrimRight(text[i+len("Last error: "):], " }],")
	}
	return text
}
