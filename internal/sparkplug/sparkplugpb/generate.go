// Package sparkplugpb is generated from sparkplug.proto.
package sparkplugpb

//go:generate go build -modfile=../../../tools/go.mod -o ../../../bin/ google.golang.org/protobuf/cmd/protoc-gen-go
//go:generate protoc --plugin=../../../bin/protoc-gen-go --go_out=. --go_opt=paths=source_relative sparkplug.proto
