// Package telemetrypb is Brim's gRPC interface: brim/v1/ingest.proto and the
// code that protoc generates from it.
package telemetrypb

//go:generate go build -modfile=../../tools/go.mod -o ../../bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
//go:generate protoc --plugin=../../bin/protoc-gen-go --plugin=../../bin/protoc-gen-go-grpc --go_out=. --go_opt=module=github.com/brim-telemetry/brim/pkg/telemetrypb --go-grpc_out=. --go-grpc_opt=module=github.com/brim-telemetry/brim/pkg/telemetrypb brim/v1/ingest.proto
