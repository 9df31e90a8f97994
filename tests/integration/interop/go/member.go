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

// protocols are the options of a member in a protocol, as in ../../../support/group_protocols.py.
// With any other balancer, the default among them, no member is in the consumer protocol (KIP-848).
var protocols = map[string][]kgo.Opt{
	"classic": {
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second),
	},
	"consumer": {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
}

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

// member reads a topic until the context ends, and prints what ../member_program.py documents.
func member(ctx context.Context, servers []string, topic, group, protocol string) error {
	o := &owner{topic: topic}
	client, err := kgo.NewClient(append(protocols[protocol],
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
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
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
	return nil
}
