package launch_test

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the program that the tests launch: the test binary itself,
// whose last argument is its behaviour.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch last := os.Args[len(os.Args)-1]; os.Args[1] {
		case "serve":
			os.Exit(pretend(last))
		case "load":
			os.Exit(pretendLoad(last))
		}
	}
	goleak.VerifyTestMain(m)
}

func pretend(behaviour string) (code int) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	log := func(line string) { fmt.Fprintln(os.Stderr, line) }
	if behaviour == "ends" {
		log("no such flag")
		return 2
	}
	log(`{"msg":"preparing","step":"installs a mongod"}`)
	log(`{"level":"INFO","msg":"of no interest"}`)
	log(`{"level":"WARN","msg":"the disk is slow"}`)
	log(fmt.Sprintf("%s uri=%s bin=%s", strings.Join(os.Args[1:], " "), os.Getenv("BRIM_MONGO_URI"), os.Getenv("BRIM_MONGOD_BIN")))
	log(`{"level":"INFO","msg":"listening","http":"127.0.0.1:1","grpc":"127.0.0.1:2","admin":"127.0.0.1:3"}`)
	if behaviour == "ready" {
		log(`{"msg":"ready"}`)
		log(`{"msg":"ready"}`) // which says nothing new
	}
	<-terminated
	if behaviour == "stays" {
		log("not yet")
		select {}
	}
	return 0
}

// pretendLoad answers with its settings where the first error of a result is.
func pretendLoad(behaviour string) (code int) {
	switch behaviour {
	case "fails":
		fmt.Fprintln(os.Stderr, "no such stream")
		return 1
	case "hangs":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		<-terminated
	case "babbles":
		fmt.Fprintln(os.Stdout, "well")
		return 0
	}
	fmt.Fprintf(os.Stdout, `{"sent":7,"first_errors":["%s uri=%s alone=%v"]}`, strings.Join(os.Args[1:], " "), os.Getenv("BRIM_MONGO_URI"), syscall.Getpgrp() == os.Getpid())
	return 0
}
