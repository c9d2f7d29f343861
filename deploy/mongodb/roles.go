// Package mongodb has the least-privilege roles for Brim. roles.js defines
// them, for people to run in mongosh; Roles reads them for programs.
package mongodb

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The roles, as roles.js names them.
const (
	Serve   = "brimServe"       // brim serve
	Doctor  = "brimDoctor"      // brim doctor
	Compact = "brimCompact"     // brim compact
	Move    = "brimMove"        // brim move
	Shard   = "brimShard"       // the commands of docs/growing.md
	Shards  = "brimServeShards" // brim serve on a sharded cluster, in addition to Serve
	Reader  = "brimReader"      // reads the views of bucket streams, and time-series streams
)

//go:embed roles.js
var script string

// A Role is a role in the database admin.
type Role struct {
	Name       string      `json:"role"`
	For        string      `json:"for"` // who uses it
	Privileges []Privilege `json:"privileges"`
	Inherits   []string    `json:"roles"` // built-in roles, in the database admin
}

// A Privilege allows actions on a resource, both as MongoDB names them.
type Privilege struct {
	Resource map[string]any `json:"resource"`
	Actions  []string       `json:"actions"`
}

// A Stream is one that a role may read.
type Stream struct {
	Name       string
	TimeSeries bool // its collection is read, not a view
}

// The lines around the list in the script, and its placeholders for the
// database, a bucket stream and a time-series stream.
const (
	listBegins    = "const ROLES = "
	listEnds      = "\n];"
	anyDatabase   = "brim"
	anyStream     = "STREAM"
	anyTimeSeries = "TIMESERIES"
)

// Roles returns the script's roles for a database and, for roles that name
// streams, these streams.
func Roles(database string, streams ...Stream) ([]Role, error) {
	_, list, begun := strings.Cut(script, listBegins)
	list, _, ended := strings.Cut(list, listEnds)
	if !begun || !ended {
		return nil, errors.New("read roles.js: there is no list of roles in it")
	}
	var roles []Role
	if err := json.Unmarshal([]byte(list+"]"), &roles); err != nil {
		return nil, fmt.Errorf("read roles.js: %w", err)
	}
	for i, role := range roles {
		roles[i].Privileges = nil
		for _, p := range role.Privileges {
			roles[i].Privileges = append(roles[i].Privileges, p.of(database, streams)...)
		}
	}
	return roles, nil
}

// of returns the privilege for a database; if it is for a stream, once per stream
// of its kind.
func (p Privilege) of(database string, streams []Stream) (out []Privilege) {
	if p.Resource["db"] == anyDatabase {
		p.Resource["db"] = database
	}
	collection, _ := p.Resource["collection"].(string)
	word := anyStream
	if strings.Contains(collection, anyTimeSeries) {
		word = anyTimeSeries
	} else if !strings.Contains(collection, anyStream) {
		return []Privilege{p}
	}
	for _, stream := range streams {
		if stream.TimeSeries != (word == anyTimeSeries) {
			continue
		}
		resource := maps.Clone(p.Resource)
		resource["collection"] = strings.ReplaceAll(collection, word, stream.Name)
		out = append(out, Privilege{Resource: resource, Actions: p.Actions})
	}
	return out
}

// Named returns one of the roles.
func Named(name, database string, streams ...Stream) (Role, error) {
	roles, err := Roles(database, streams...)
	if err != nil {
		return Role{}, err
	}
	for _, role := range roles {
		if role.Name == name {
			return role, nil
		}
	}
	return Role{}, fmt.Errorf("read roles.js: there is no role %s in it", name)
}

// Command is the command that creates or updates the role, depending on verb:
// createRole or updateRole.
func (r Role) Command(verb string) bson.D {
	privileges := bson.A{}
	for _, p := range r.Privileges {
		privileges = append(privileges, bson.D{{Key: "resource", Value: p.Resource}, {Key: "actions", Value: p.Actions}})
	}
	inherits := bson.A{}
	for _, role := range r.Inherits {
		inherits = append(inherits, role)
	}
	return bson.D{{Key: verb, Value: r.Name}, {Key: "privileges", Value: privileges}, {Key: "roles", Value: inherits}}
}
