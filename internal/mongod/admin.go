package mongod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	roles "github.com/brim-telemetry/brim/deploy/mongodb"
)

const (
	// startInterval is how often a starting mongod is polled; it takes some 300 ms.
	startInterval = 10 * time.Millisecond
	// adminTimeout of one administrative command on loopback.
	adminTimeout = 5 * time.Second
	// maxOtherUsers are listed in the log and in the status.
	maxOtherUsers = 20

	codeAuthenticationFailed = 18
	codeAlreadyInitialized   = 23
	codeNotYetInitialized    = 94
	codeRoleExists           = 51002
	codeUserExists           = 51003
)

// admin is a connection to a mongod for administrative commands.
type admin struct {
	client *mongo.Client
	db     *mongo.Database
	host   string
}

// connect waits until a process listens on the port, then connects, with the key as
// the server itself if there is one. The driver alone would wait half a second
// between attempts.
func connect(ctx context.Context, port int, key string) (*admin, error) {
	host := net.JoinHostPort(loopback, strconv.Itoa(port))
	var dialer net.Dialer
	err := poll(ctx, startInterval, func() (bool, error) {
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("connect to mongod: %w", err)
	}
	config := options.Client().ApplyURI("mongodb://" + host + "/?directConnection=true").SetTimeout(adminTimeout).SetMaxPoolSize(1)
	if key != "" {
		config.SetAuth(options.Credential{AuthMechanism: "SCRAM-SHA-256", AuthSource: "local", Username: systemUser, Password: key, PasswordSet: true})
	}
	client, err := mongo.Connect(config)
	if err != nil {
		return nil, fmt.Errorf("connect to mongod: %w", err)
	}
	return &admin{client: client, db: client.Database("admin"), host: host}, nil
}

func (a *admin) close() {
	// If the server is gone, the driver would look for it until the timeout.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = a.client.Disconnect(ctx)
}

// run runs a command; answer may be nil.
func (a *admin) run(ctx context.Context, command bson.D, answer any) error {
	result := a.db.RunCommand(ctx, command)
	if answer == nil {
		return result.Err()
	}
	return result.Decode(answer)
}

func hasCode(err error, code int) bool {
	var answer mongo.ServerError
	return errors.As(err, &answer) && answer.HasErrorCode(code)
}

// permanentError is one that waiting does not fix.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// awaitWritable waits until the mongod with those data files accepts writes. If necessary,
// it first initiates the replica set or updates its port.
func (a *admin) awaitWritable(ctx context.Context, dbPath string, standalone bool) error {
	var last error
	err := poll(ctx, startInterval, func() (bool, error) {
		var writable bool
		if last = a.checkOurs(ctx, dbPath); last == nil {
			writable, last = a.writable(ctx)
		}
		if last == nil && !writable && !standalone {
			last = a.configure(ctx)
		}
		if permanent := (permanentError{}); errors.As(last, &permanent) {
			return false, last
		}
		return writable && last == nil, nil
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(fmt.Errorf("wait for mongod to accept writes: %w", err), last)
	}
	return err
}

// checkOurs makes sure that the mongod with these data files answers, since another
// one may have taken the port. The pid does not prove it: in an emulator, mongod
// reports a pid other than its process's.
func (a *admin) checkOurs(ctx context.Context, dbPath string) error {
	var options struct {
		Argv []string `bson:"argv"`
	}
	err := a.run(ctx, bson.D{{Key: "getCmdLineOpts", Value: 1}}, &options)
	if hasCode(err, codeAuthenticationFailed) || err == nil && !startedWith(options.Argv, "--dbpath", dbPath) { // ours knows the key
		return permanentError{errPortTaken}
	}
	if err != nil {
		return fmt.Errorf("ask mongod for its data files: %w", err)
	}
	return nil
}

func (a *admin) writable(ctx context.Context) (bool, error) {
	var hello struct {
		IsWritablePrimary bool   `bson:"isWritablePrimary"`
		Me                string `bson:"me"`
	}
	if err := a.run(ctx, bson.D{{Key: "hello", Value: 1}}, &hello); err != nil {
		return false, fmt.Errorf("ask mongod whether it accepts writes: %w", err)
	}
	return hello.IsWritablePrimary && (hello.Me == "" || hello.Me == a.host), nil
}

// configure makes this member the only one of its replica set, at its current
// address. It does nothing if it is already, but not elected yet.
func (a *admin) configure(ctx context.Context) error {
	var stored struct {
		Config bson.M `bson:"config"`
	}
	err := a.run(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}, &stored)
	if hasCode(err, codeNotYetInitialized) {
		member := bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: a.host}}
		config := bson.D{{Key: "_id", Value: replicaSet}, {Key: "members", Value: bson.A{member}}}
		if err := a.run(ctx, bson.D{{Key: "replSetInitiate", Value: config}}, nil); err != nil && !hasCode(err, codeAlreadyInitialized) {
			return fmt.Errorf("initiate the replica set: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration of the replica set: %w", err)
	}
	members, _ := stored.Config["members"].(bson.A)
	if len(members) != 1 {
		return permanentError{fmt.Errorf("use the stored replica set: it has %d members, and the embedded mongod runs alone", len(members))}
	}
	member, ok := members[0].(bson.D)
	if !ok {
		return permanentError{fmt.Errorf("use the stored replica set: its member is a %T", members[0])}
	}
	for i := range member {
		if member[i].Key != "host" || member[i].Value == a.host {
			continue
		}
		member[i].Value = a.host
		// It must be forced: a member that is not in the configuration under its
		// own address is not a member, and there is no other to ask. mongod first
		// asks the old address whether that is itself, and waits up to 30 s if a
		// silent program has taken the old port.
		if err := a.run(ctx, bson.D{{Key: "replSetReconfig", Value: stored.Config}, {Key: "force", Value: true}}, nil); err != nil {
			return fmt.Errorf("move the replica set to %s: %w", a.host, err)
		}
	}
	return nil
}

// setUsers sets the two users and their roles, whatever exists. Other users and
// roles are left alone.
func (a *admin) setUsers(ctx context.Context, c credentials, database string) error {
	serve, err := roles.Named(roles.Serve, database)
	if err != nil {
		return err
	}
	// The owner can read the data files anyway.
	everything := roles.Role{Name: "brimOwner", Privileges: []roles.Privilege{
		{Resource: map[string]any{"anyResource": true}, Actions: []string{"anyAction"}},
	}}
	for _, role := range []roles.Role{serve, everything} {
		err := a.run(ctx, role.Command("createRole"), nil)
		if hasCode(err, codeRoleExists) {
			err = a.run(ctx, role.Command("updateRole"), nil)
		}
		if err != nil {
			return fmt.Errorf("set role %s: %w", role.Name, err)
		}
	}
	for _, user := range []struct{ name, password, role string }{{daemonUser, c.daemon, serve.Name}, {ownerUser, c.owner, everything.Name}} {
		command := bson.D{
			{Key: "createUser", Value: user.name}, {Key: "pwd", Value: user.password},
			{Key: "roles", Value: bson.A{user.role}}, {Key: "mechanisms", Value: bson.A{"SCRAM-SHA-256"}},
		}
		err := a.run(ctx, command, nil)
		if hasCode(err, codeUserExists) {
			command[0].Key = "updateUser"
			err = a.run(ctx, command, nil)
		}
		if err != nil {
			return fmt.Errorf("set user %s: %w", user.name, err)
		}
	}
	return nil
}

// otherUsers lists the users other than those two. The daemon cannot tell users
// created by the operator from those that anyone could create while mongod did not
// require authentication, so it removes none.
func (a *admin) otherUsers(ctx context.Context) ([]string, error) {
	own := bson.A{"admin." + daemonUser, "admin." + ownerUser}
	cursor, err := a.db.Collection("system.users").Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$nin", Value: own}}}},
		options.Find().SetLimit(maxOtherUsers).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	type name struct {
		Database string `bson:"db"`
		User     string `bson:"user"`
		Role     string `bson:"role"`
	}
	var users []struct {
		Name  name   `bson:",inline"`
		Roles []name `bson:"roles"`
	}
	if err := cursor.All(ctx, &users); err != nil {
		return nil, err
	}
	var out []string
	for _, u := range users {
		var may []string
		for _, r := range u.Roles {
			may = append(may, r.Role+"@"+r.Database)
		}
		out = append(out, fmt.Sprintf("%s@%s (%s)", u.Name.User, u.Name.Database, strings.Join(may, ", ")))
	}
	return out, nil
}
