package mongod

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
)

const (
	codeRoleExists = 51002
	codeUserExists = 51003
	codeNotAllowed = 18 // AuthenticationFailed

	ownerRole = "brimOwner"
)

// admit sets the two users and their roles to what they have to be, whatever
// was there. Other users and roles stay as they are; see nameOthers.
func (a *admin) admit(ctx context.Context, c credentials, database string) error {
	serve, err := roles.Named(roles.Serve, database)
	if err != nil {
		return err
	}
	// What is in the files is the owner's anyway.
	everything := roles.Role{Name: ownerRole, Privileges: []roles.Privilege{
		{Resource: map[string]any{"anyResource": true}, Actions: []string{"anyAction"}},
	}}
	for _, role := range []roles.Role{serve, everything} {
		if err := a.createOrUpdate(ctx, role.Command("createRole"), role.Command("updateRole"), codeRoleExists); err != nil {
			return fmt.Errorf("set role %s: %w", role.Name, err)
		}
	}
	for _, user := range []struct{ name, password, role string }{
		{daemonUser, c.daemon, serve.Name},
		{ownerUser, c.owner, everything.Name},
	} {
		rights := bson.D{
			{Key: "pwd", Value: user.password},
			{Key: "roles", Value: bson.A{user.role}},
			{Key: "mechanisms", Value: bson.A{"SCRAM-SHA-256"}},
		}
		create := append(bson.D{{Key: "createUser", Value: user.name}}, rights...)
		update := append(bson.D{{Key: "updateUser", Value: user.name}}, rights...)
		if err := a.createOrUpdate(ctx, create, update, codeUserExists); err != nil {
			return fmt.Errorf("set user %s: %w", user.name, err)
		}
	}
	return nil
}

// createOrUpdate runs the second command where the first answers with the code
// of something that is there.
func (a *admin) createOrUpdate(ctx context.Context, create, update bson.D, exists int) error {
	err := a.run(ctx, create, nil)
	if hasCode(err, exists) {
		err = a.run(ctx, update, nil)
	}
	return err
}
