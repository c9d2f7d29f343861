package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func ExampleClient_Write() {
	address, _, stop := client.StartDaemon() // or "http://127.0.0.1:8430"
	defer stop()

	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		slog.Error("configure the client", "err", err)
		return
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := c.Write(ctx, telemetry.Reading{
		Sensor: "s-1", Time: time.Now(),
		Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(23.5)}, {Name: "h", Value: telemetry.IntValue(65)}},
		Tags:   []telemetry.Tag{{Name: "site", Value: "north"}},
	})
	fmt.Println(result.Accepted, result.Ack, err)
	// Output: 1 journaled <nil>
}

// Readings that break a rule are named; the others are accepted.
func ExampleRefusedError() {
	address, _, stop := client.StartDaemon()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		slog.Error("configure the client", "err", err)
		return
	}
	defer c.Close()

	good := telemetry.Reading{Sensor: "s-1", Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(1)}}}
	bad := telemetry.Reading{Sensor: "s-2", Fields: []telemetry.Field{{Name: "$t", Value: telemetry.FloatValue(1)}}}
	_, err = c.Write(context.Background(), good, bad)
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(refused.Result.Accepted, "accepted")
		for _, r := range refused.Result.Refused {
			fmt.Println(r.Index, r.Sensor, r.Code, r.Message)
		}
	}
	// Output:
	// 1 accepted
	// 1 s-2 field_name field name "$t" begins with $
}

// If another process may have to repeat a request, its key is stored before it
// is sent.
func ExampleClient_Send() {
	_, address, stop := client.StartDaemon() // or "grpc://127.0.0.1:8431"
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}, Ack: telemetry.Stored})
	if err != nil {
		slog.Error("configure the client", "err", err)
		return
	}
	defer c.Close()

	request := client.Request{
		Key:      "gateway-7/upload-1041",
		Readings: []telemetry.Reading{{Sensor: "s-1", Time: time.Now(), Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(23.5)}}}},
	}
	for range 2 {
		result, err := c.Send(context.Background(), request)
		fmt.Println(result.Accepted, result.Ack, result.Replayed, err)
	}
	// Output:
	// 1 stored false <nil>
	// 1 stored true <nil>
}

func ExampleBatcher() {
	_, address, stop := client.StartDaemon()
	defer stop()
	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		slog.Error("configure the client", "err", err)
		return
	}
	defer c.Close()
	b, err := c.NewBatcher(client.BatcherConfig{
		MaxAge: time.Second,
		OnRefused: func(_ telemetry.Reading, r client.Refused) {
			slog.Warn("reading refused", "sensor", r.Sensor, "code", r.Code, "message", r.Message)
		},
		OnLost: func(readings []telemetry.Reading, err error) {
			slog.Error("readings lost", "readings", len(readings), "err", err)
		},
	})
	if err != nil {
		slog.Error("configure the batcher", "err", err)
		return
	}
	for i := range 5000 {
		reading := telemetry.Reading{
			Sensor: fmt.Sprintf("s-%d", i%10), Time: time.Now(),
			Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(float64(i) / 10)}},
		}
		if err := b.Add(context.Background(), reading); err != nil { // waits while the buffer is full
			slog.Error("add a reading", "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil { // says how many were not delivered
		slog.Error("close the batcher", "err", err)
	}
	fmt.Println(b.Stats().Delivered, "delivered")
	// Output: 5000 delivered
}
