package mongod

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Whoever could reach a mongod that asked nobody may have made users in it. Once
// it asks, these keep their rights: the daemon cannot tell them from those that
// the operator made, and so removes none. It names them.

// maxOthers is how many are named.
const maxOthers = 20

// An OtherUser is a user of the embedded mongod that is not the daemon's.
type OtherUser struct {
	Name     string   `bson:"user"`
	Database string   `bson:"db"`
	Roles    []onRole `bson:"roles"`
}

type onRole struct {
	Name     string `bson:"role"`
	Database string `bson:"db"`
}

// String tells who it is and what he may do, as "ann@admin (root@admin)".
func (u OtherUser) String() string {
	roles := make([]string, len(u.Roles))
	for i, r := range u.Roles {
		roles[i] = r.Name + "@" + r.Database
	}
	return fmt.Sprintf("%s@%s (%s)", u.Name, u.Database, strings.Join(roles, ", "))
}

// drop is how an operator removes the user in mongosh.
func (u OtherUser) drop() string {
	return fmt.Sprintf("db.getSiblingDB(%q).dropUser(%q)", u.Database, u.Name)
}

// OtherUsers are those that were there at the last start of a mongod that asks,
// beside the daemon's two; at most 20 of them.
func (s *Server) OtherUsers() []OtherUser {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others
}

// nameOthers warns of each of the other users. A start does not fail for it.
func (s *Server) nameOthers(ctx context.Context, a *admin) {
	others, err := a.others(ctx)
	if err != nil {
		s.log.Warn("look for other users of the embedded mongod", "error", err)
		return
	}
	s.mu.Lock()
	s.others = others
	s.mu.Unlock()
	for _, u := range others {
		s.log.Warn("the embedded mongod has a user that is not the daemon's; drop it unless you made it",
			"user", u.String(), "drop_by", u.drop(), "uri_file", s.files.uri)
	}
	if len(others) == maxOthers {
		s.log.Warn("there may be more users that are not the daemon's", "named", maxOthers, "list_by", `db.getSiblingDB("admin").system.users.find()`)
	}
}

// others returns the users beside the two that admit sets.
func (a *admin) others(ctx context.Context) ([]OtherUser, error) {
	own := bson.A{"admin." + daemonUser, "admin." + ownerUser}
	cursor, err := a.db.Collection("system.users").Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$nin", Value: own}}}},
		options.Find().SetLimit(maxOthers).SetSort(bson.D{{Key: "_id", Value: 1}}).
			SetProjection(bson.D{{Key: "user", Value: 1}, {Key: "db", Value: 1}, {Key: "roles", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	var users []OtherUser
	if err := cursor.All(ctx, &users); err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return users, nil
}
