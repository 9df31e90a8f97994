package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// inConsumerProtocol are the options of a member in the consumer protocol (KIP-848). With any other
// balancer, the default among them, it would be one in the classic protocol.
var inConsumerProtocol = []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}

// owner prints the partitions that a member owns whenever they change.
type owner struct {
	topic string
	lock  sync.Mutex
	owned []int32
}

func (o *owner) change(changed func([]int32) []int32) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.owned = changed(o.owned)
	slices.Sort(o.owned)
	tell("owns", strings.Trim(fmt.Sprint(o.owned), "[]"))
}

func (o *owner) assigned(_ context.Context, _ *kgo.Client, more map[string][]int32) {
	o.change(func(owned []int32) []int32 { return append(owned, more[o.topic]...) })
}

func (o *owner) removed(_ context.Context, _ *kgo.Client, fewer map[string][]int32) {
	o.change(func(owned []int32) []int32 {
		return slices.DeleteFunc(
			owned, func(each int32) bool { return slices.Contains(fewer[o.topic], each) })
	})
}

// member reads a topic in the consumer protocol until it is killed, and prints what
// ../member_program.py documents.
func member(servers []string, topic, group string) error {
	o := &owner{topic: topic}
	client, err := kgo.NewClient(append(inConsumerProtocol,
		kgo.SeedBrokers(servers...),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(o.assigned),
		kgo.OnPartitionsRevoked(o.removed),
		kgo.OnPartitionsLost(o.removed),
	)...)
	if err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachError(func(topic string, partition int32, err error) {
			tell("failed", fmt.Sprintf("%q", err))
		})
		fetches.EachRecord(func(each *kgo.Record) {
			tell("read", each.Partition, string(each.Value))
		})
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			tell("failed", fmt.Sprintf("%q", err))
		}
	}
}
