// franz-go as a program that prints what it has done to standard output.
//
//	franz transform SERVERS RECORDS ROUTE [MEMBER PROTOCOL]
//	franz read SERVERS PARTITIONS ROUTE
//	franz exchange
//	franz member SERVERS TOPIC GROUP PROTOCOL
//
// The first two are the counterpart of ../../transactions/program.py, which documents the commands
// and output; the others are described in exchange.go and member.go.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if os.Args[1] == "exchange" {
		exit(obey())
	}
	servers, name := strings.Split(os.Args[2], ","), os.Args[4]
	if os.Args[1] == "member" {
		exit(member(terminated(), servers, os.Args[3], name, os.Args[5]))
	}
	number, err := strconv.Atoi(os.Args[3])
	if err == nil && os.Args[1] == "transform" {
		err = transform(terminated(), route{servers, name}, int64(number), os.Args[5:]...)
	} else if err == nil {
		err = read(route{servers, name}, number)
	}
	exit(err)
}

// terminated returns a context that SIGTERM ends.
func terminated() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// route names the topics that records are copied from and to, as Route in transformer.py.
type route struct {
	servers []string
	name    string
}

func (r route) input() string  { return r.name + "input" }
func (r route) output() string { return r.name + "output" }
func (r route) group() string  { return r.name + "transformers" }

// common are the options of every client.
func (r route) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(r.servers...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
}

func tell(words ...any) { fmt.Println(words...) }
