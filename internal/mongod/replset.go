package mongod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// pollInterval is how often a starting mongod is looked at; it takes
	// some 300 ms to start, so this adds little.
	pollInterval = 10 * time.Millisecond
	// adminTimeout bounds one administrative command on loopback.
	adminTimeout = 5 * time.Second
	// goodbyeTimeout bounds the end of the connection.
	goodbyeTimeout = 100 * time.Millisecond

	codeNotYetInitialized  = 94
	codeAlreadyInitialized = 23
)

// admin is a connection to one mongod for administrative commands.
type admin struct {
	client *mongo.Client
	db     *mongo.Database
	host   string
}

// connect waits until something listens on the port, then connects, with the
// key as the server itself if there is one. The driver alone would wait half a
// second between two attempts.
func connect(ctx context.Context, port int, key string) (*admin, error) {
	host := net.JoinHostPort(loopback, strconv.Itoa(port))
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to mongod: %w", context.Cause(ctx))
		}
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
	// When the server is gone there is nobody to end the session with, and
	// the driver would look for it until the time is over.
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer cancel()
	_ = a.client.Disconnect(ctx)
}

func (a *admin) run(ctx context.Context, command bson.D, answer any) error {
	result := a.db.RunCommand(ctx, command)
	if answer == nil {
		return result.Err()
	}
	return result.Decode(answer)
}

// awaitWritable waits until the mongod with that pid takes writes. A member of
// a replica set is first told of the set, or of its new port, where it needs
// it.
func (a *admin) awaitWritable(ctx context.Context, pid int, standalone bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	err := a.checkPid(ctx, pid)
	for {
		writable := false
		if err == nil {
			writable, err = a.writable(ctx)
		}
		if err == nil && !writable && !standalone {
			err = a.configure(ctx)
		}
		if writable || isFinal(err) {
			return err
		}
		select {
		case <-tick.C:
			err = a.checkPid(ctx, pid)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for mongod to take writes: %w", context.Cause(ctx)), err)
		}
	}
}

// checkPid makes sure that it is the started process that answers: another
// mongod may have taken the port in between.
func (a *admin) checkPid(ctx context.Context, pid int) error {
	var status struct {
		Pid int `bson:"pid"`
	}
	command := bson.D{{Key: "serverStatus", Value: 1}, {Key: "metrics", Value: 0}, {Key: "wiredTiger", Value: 0}, {Key: "repl", Value: 0}}
	err := a.run(ctx, command, &status)
	if hasCode(err, codeNotAllowed) { // the started one knows the key
		return finalError{errPortTaken}
	}
	if err != nil {
		return fmt.Errorf("ask mongod for its pid: %w", err)
	}
	if status.Pid != pid {
		return finalError{errPortTaken}
	}
	return nil
}

func (a *admin) writable(ctx context.Context) (bool, error) {
	var hello struct {
		IsWritablePrimary bool   `bson:"isWritablePrimary"`
		Me                string `bson:"me"`
	}
	if err := a.run(ctx, bson.D{{Key: "hello", Value: 1}}, &hello); err != nil {
		return false, fmt.Errorf("ask mongod whether it takes writes: %w", err)
	}
	return hello.IsWritablePrimary && (hello.Me == "" || hello.Me == a.host), nil
}

// configure makes this member the whole of its set, at its present address.
// It does nothing when it is that already and only not elected yet.
func (a *admin) configure(ctx context.Context) error {
	var stored struct {
		Config bson.M `bson:"config"`
	}
	err := a.run(ctx, bson.D{{Key: "replSetGetConfig", Value: 1}}, &stored)
	if hasCode(err, codeNotYetInitialized) {
		return a.initiate(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the replica set's configuration: %w", err)
	}
	members, _ := stored.Config["members"].(bson.A)
	if len(members) != 1 {
		return finalError{fmt.Errorf("use the stored replica set: it has %d members, and the embedded mongod runs alone", len(members))}
	}
	member, ok := members[0].(bson.D)
	if !ok {
		return finalError{fmt.Errorf("use the stored replica set: its member is a %T", members[0])}
	}
	if moved := withHost(member, a.host); moved != nil {
		stored.Config["members"] = bson.A{moved}
		return a.reconfigure(ctx, stored.Config)
	}
	return nil
}

func (a *admin) initiate(ctx context.Context) error {
	config := bson.D{
		{Key: "_id", Value: replicaSet},
		{Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: a.host}}}},
	}
	err := a.run(ctx, bson.D{{Key: "replSetInitiate", Value: config}}, nil)
	if err != nil && !hasCode(err, codeAlreadyInitialized) {
		return fmt.Errorf("initiate the replica set: %w", err)
	}
	return nil
}

// reconfigure has to force: a member that does not find its own address in
// the configuration is no member, and there is no other to ask. Before it can
// be told, mongod asks the old address whether that is itself; it waits up to
// 30 s for a program that has taken the old port and says nothing.
func (a *admin) reconfigure(ctx context.Context, config bson.M) error {
	err := a.run(ctx, bson.D{{Key: "replSetReconfig", Value: config}, {Key: "force", Value: true}}, nil)
	if err != nil {
		return fmt.Errorf("move the replica set to %s: %w", a.host, err)
	}
	return nil
}

// withHost returns the member at another address, nil when it is there.
func withHost(member bson.D, host string) bson.D {
	moved := make(bson.D, 0, len(member))
	for _, field := range member {
		if field.Key == "host" {
			if field.Value == host {
				return nil
			}
			field.Value = host
		}
		moved = append(moved, field)
	}
	return moved
}

func hasCode(err error, code int) bool {
	var answer mongo.ServerError
	return errors.As(err, &answer) && answer.HasErrorCode(code)
}

// finalError is one that waiting does not mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}
