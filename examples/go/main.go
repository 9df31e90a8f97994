// Price orders exactly once in Go. Client: franz-go.
//
//	cd examples/go && go run . localhost:9092
//
// A GroupTransactSession commits the priced orders together with the offsets of the orders that they
// come from, and reads again after an abort. On a new broker it prints:
//
//	priced 4 orders
//	2 apples cost 4
//	1 pears cost 3
//	5 plums cost 5
//	3 apples cost 6
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	source = "examples.go.unpriced"
	target = "examples.go.priced"
)

var (
	orders = []string{"2 apples", "1 pears", "5 plums", "3 apples"}
	prices = map[string]int{"apples": 2, "pears": 3, "plums": 1}
)

func main() {
	servers := "localhost:9092"
	if len(os.Args) > 1 {
		servers = os.Args[1]
	}
	if err := run(context.Background(), strings.Split(servers, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, servers []string) error {
	brokers := kgo.SeedBrokers(servers...)
	if err := produceOrders(ctx, brokers); err != nil {
		return err
	}
	if err := priceOrders(ctx, brokers); err != nil {
		return err
	}
	return printPriced(ctx, brokers)
}

func produceOrders(ctx context.Context, brokers kgo.Opt) error {
	client, err := kgo.NewClient(brokers, kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	for _, order := range orders {
		record := &kgo.Record{Topic: source, Value: []byte(order)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// priceOrders ends when all orders are priced. After an error the program ends too: the next one
// with this transactional id goes on from the committed offsets.
func priceOrders(ctx context.Context, brokers kgo.Opt) error {
	session, err := kgo.NewGroupTransactSession(
		brokers,
		kgo.AllowAutoTopicCreation(),
		kgo.TransactionalID("pricing-go-1"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup("pricing-go"),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	done := 0
	for done < len(orders) {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		committed, err := transact(ctx, session, fetches)
		if err != nil {
			return err
		}
		if committed {
			done += fetches.NumRecords()
		}
	}
	fmt.Printf("priced %d orders\n", done)
	return nil
}

// transact prices the fetched orders in one transaction, and tells whether it was committed: it is
// aborted if a record failed, or if the group was rebalanced meanwhile.
func transact(
	ctx context.Context, session *kgo.GroupTransactSession, fetches kgo.Fetches,
) (bool, error) {
	if err := session.Begin(); err != nil {
		return false, err
	}
	failed := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(order *kgo.Record) {
		priced := &kgo.Record{Topic: target, Key: order.Key, Value: []byte(price(string(order.Value)))}
		session.Produce(ctx, priced, failed.Promise())
	})
	return session.End(ctx, kgo.TransactionEndTry(failed.Err() == nil))
}

func price(order string) string {
	var count int
	var fruit string
	fmt.Sscanf(order, "%d %s", &count, &fruit)
	return fmt.Sprintf("%s cost %d", order, count*prices[fruit])
}

func printPriced(ctx context.Context, brokers kgo.Opt) error {
	client, err := kgo.NewClient(
		brokers,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics(target),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for left := len(orders); left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
		left -= fetches.NumRecords()
	}
	return nil
}
