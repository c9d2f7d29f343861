// Command mongosetup does for an image without mongosh what
// deploy/compose/mongo-setup.js does: on mongod's own machine it creates the replica
// set, its owner, the role of Brim and Brim's user, unless the owner is there.
// `mongo-setup ping` only checks whether mongod answers.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
)

const (
	secrets  = "/secrets/mongo"
	owner    = "owner"
	patience = time.Minute
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	run := setUp
	if slices.Contains(os.Args[1:], "ping") {
		run = ping
	}
	err := run(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mongo-setup:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func connect(auth *options.Credential) (*mongo.Database, error) {
	o := options.Client().ApplyURI("mongodb://127.0.0.1:27017/?directConnection=true").SetTimeout(patience)
	if auth != nil {
		o.SetAuth(*auth)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("connect to mongod: %w", err)
	}
	return client.Database("admin"), nil
}

func ping(ctx context.Context) error {
	admin, err := connect(nil)
	if err != nil {
		return err
	}
	return admin.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err()
}

func secret(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(secrets, name))
	return strings.TrimSpace(string(text)), err
}

func setUp(ctx context.Context) error {
	ownerPassword, err := secret("owner-password")
	if err != nil {
		return err
	}
	password, err := secret("brim-password")
	if err != nil {
		return err
	}
	known, err := connect(&options.Credential{Username: owner, Password: ownerPassword, AuthSource: "admin"})
	if err != nil {
		return err
	}
	if known.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err() == nil {
		return nil
	}
	role, err := roles.Named(roles.Serve, "brim")
	if err != nil {
		return err
	}
	// From this machine, and as long as there is no user, this needs no password.
	admin, err := connect(nil)
	if err != nil {
		return err
	}
	member := bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: "mongo:27017"}}
	initiate := bson.D{{Key: "replSetInitiate", Value: bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{member}}}}}
	if err := admin.RunCommand(ctx, initiate).Err(); err != nil {
		return fmt.Errorf("initiate the replica set: %w", err)
	}
	if err := awaitPrimary(ctx, admin); err != nil {
		return err
	}
	user := func(name, password, role string) bson.D {
		return bson.D{{Key: "createUser", Value: name}, {Key: "pwd", Value: password}, {Key: "roles", Value: bson.A{role}}}
	}
	if err := admin.RunCommand(ctx, user(owner, ownerPassword, "root")).Err(); err != nil {
		return fmt.Errorf("make the owner: %w", err)
	}
	for _, command := range []bson.D{role.Command("createRole"), user("brim-serve", password, roles.Serve)} {
		if err := known.RunCommand(ctx, command).Err(); err != nil {
			return fmt.Errorf("make the role and its user: %w", err)
		}
	}
	return nil
}

func awaitPrimary(ctx context.Context, admin *mongo.Database) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var hello struct {
			IsWritablePrimary bool `bson:"isWritablePrimary"`
		}
		if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
			return fmt.Errorf("ask mongod who it is: %w", err)
		}
		if hello.IsWritablePrimary {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a primary: %w", ctx.Err())
		}
	}
}
