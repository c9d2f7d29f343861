// Command mongosetup replaces deploy/compose/mongo-setup.js in images without
// mongosh: on mongod's own host it creates the replica set, its owner, Brim's role
// and Brim's user. `mongo-setup ping` only checks whether mongod answers.
package main

import (
	"context"
	"errors"
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

	codeAlreadyInitialized = 23
	codeDuplicate          = 51002 // the role already exists
	codeUserExists         = 51003
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
	if err := known.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
		if err := begin(ctx, ownerPassword); err != nil {
			return err
		}
	}
	role, err := roles.Named(roles.Serve, "brim")
	if err != nil {
		return err
	}
	if err := makeOrSet(ctx, known, codeDuplicate, role.Command); err != nil {
		return err
	}
	return makeOrSet(ctx, known, codeUserExists, func(verb string) bson.D {
		return bson.D{
			{Key: strings.Replace(verb, "Role", "User", 1), Value: "brim-serve"}, {Key: "pwd", Value: password},
			{Key: "roles", Value: bson.A{roles.Serve}},
		}
	})
}

// begin does what localhost may do while there are no users.
func begin(ctx context.Context, password string) error {
	admin, err := connect(nil)
	if err != nil {
		return err
	}
	member := bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: "mongo:27017"}}
	err = admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{{Key: "_id", Value: "rs0"}, {Key: "members", Value: bson.A{member}}}}}).Err()
	if err != nil && !hasCode(err, codeAlreadyInitialized) {
		return fmt.Errorf("initiate the replica set: %w", err)
	}
	if err := awaitPrimary(ctx, admin); err != nil {
		return err
	}
	err = admin.RunCommand(ctx, bson.D{{Key: "createUser", Value: owner}, {Key: "pwd", Value: password}, {Key: "roles", Value: bson.A{"root"}}}).Err()
	if err != nil {
		return fmt.Errorf("make the owner: %w", err)
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

// makeOrSet creates a role or user, or updates an existing one.
func makeOrSet(ctx context.Context, admin *mongo.Database, exists int, command func(verb string) bson.D) error {
	err := admin.RunCommand(ctx, command("createRole")).Err()
	if hasCode(err, exists) {
		err = admin.RunCommand(ctx, command("updateRole")).Err()
	}
	if err != nil {
		return fmt.Errorf("make the role or user: %w", err)
	}
	return nil
}

func hasCode(err error, code int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(code)
}
