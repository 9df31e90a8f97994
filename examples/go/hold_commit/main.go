// Hold the commit of a transaction, and see that its client waits. Client: franz-go.
//
//	barnabas serve --faults localhost:9500
//	cd examples/go && BARNABAS_FAULTS_TOKEN=... go run ./hold_commit localhost:9092 http://localhost:9500
//
// With the token that the start has printed it prints:
//
//	held 1 EndTxn, committed: false
//	released, committed: true
//	read: paid
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const name = "examples.faults.go"

type lever struct {
	Lever   int `json:"lever"`
	Touched int `json:"touched"`
}

func main() {
	if err := run(context.Background(), strings.Split(os.Args[1], ","), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, servers []string, faults string) error {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(servers...), kgo.TransactionalID(name), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer producer.Close()
	held, err := post(faults+"/v1/hold", map[string]any{"api": "EndTxn", "transactional_id": name})
	if err != nil {
		return err
	}
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	record := &kgo.Record{Topic: name, Value: []byte("paid")}
	if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	committed := make(chan error, 1)
	go func() { committed <- producer.EndTransaction(ctx, kgo.TryCommit) }()
	path := fmt.Sprintf("%s/v1/levers/%d", faults, held.Lever)
	seen, err := post(path+"/wait", nil)
	if err != nil {
		return err
	}
	fmt.Printf("held %d EndTxn, committed: %t\n", seen.Touched, len(committed) > 0)
	if _, err := post(path+"/release", nil); err != nil {
		return err
	}
	err = <-committed
	fmt.Printf("released, committed: %t\n", err == nil)
	return read(ctx, servers)
}

func read(ctx context.Context, servers []string) error {
	consumer, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumeTopics(name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if records := fetches.Records(); len(records) > 0 {
			fmt.Printf("read: %s\n", records[0].Value)
			return nil
		}
	}
}

func post(url string, arguments map[string]any) (lever, error) {
	var answer lever
	body, err := json.Marshal(arguments)
	if err != nil || arguments == nil {
		body = []byte("{}")
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("BARNABAS_FAULTS_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: %s", url, response.Status)
	}
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}
