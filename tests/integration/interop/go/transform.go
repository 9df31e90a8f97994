package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const batch = 200

// transformer copies the input to the output, each record once.
type transformer struct {
	route
	member   string
	protocol string
	session  *kgo.GroupTransactSession
	attempts int
}

// transform ends when the group has committed that many records of the input, or the context ends.
func transform(ctx context.Context, r route, total int64, of ...string) error {
	t := &transformer{route: r}
	if len(of) > 0 {
		t.member, t.protocol = of[0], of[1]
	}
	for {
		done, err := t.done()
		if err == nil && (done >= total || ctx.Err() != nil) {
			t.session.Close()
			return nil
		}
		if err == nil {
			err = t.work(ctx, total-done)
		}
		if err != nil {
			tell("failed", fmt.Sprintf("%q", err))
			t.session.Close()
			t.session = nil
		}
	}
}

// done opens a session if there is none, and returns how many records the group has committed.
func (t *transformer) done() (int64, error) {
	if t.session == nil {
		opts := append(
			t.common(),
			kgo.ConsumerGroup(t.group()),
			kgo.ConsumeTopics(t.input()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.TransactionalID(t.name+"transformer"+t.member),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if t.member == "" {
			// The library loses its member id if it cannot reach a coordinator that moves: the
			// group would wait for that member until its session ends.
			opts = append(opts, kgo.InstanceID("transformer"))
		} else {
			opts = append(opts, protocols[t.protocol]...)
		}
		session, err := kgo.NewGroupTransactSession(opts...)
		if err != nil {
			return 0, err
		}
		t.session = session
	}
	// Wait until the markers of the last transaction are written.
	ctx, cancel := context.WithTimeout(kadm.RequireStable(context.Background()), time.Minute)
	defer cancel()
	for {
		offsets, err := kadm.NewClient(t.session.Client()).FetchOffsets(ctx, t.group())
		if err == nil {
			err = offsets.Error()
		}
		if err == nil || ctx.Err() != nil {
			var sum int64
			offsets.Each(func(each kadm.OffsetResponse) { sum += each.At })
			return sum, err
		}
		tell("again", fmt.Sprintf("%q", err))
		time.Sleep(50 * time.Millisecond)
	}
}

// work runs transactions until that many more records are copied, or the context ends.
func (t *transformer) work(ctx context.Context, wanted int64) error {
	for wanted > 0 && ctx.Err() == nil {
		polling, cancel := context.WithTimeout(ctx, time.Second)
		fetches := t.session.PollRecords(polling, batch)
		cancel()
		if fetches.Empty() {
			continue
		}
		t.attempts++
		committed, err := t.transact(fetches, t.attempts%3 == 0)
		if err != nil {
			return err
		}
		if committed {
			tell("committed")
			wanted -= int64(fetches.NumRecords())
		} else {
			tell("aborted")
		}
	}
	return nil
}

func (t *transformer) transact(fetches kgo.Fetches, aborts bool) (bool, error) {
	if err := t.session.Begin(); err != nil {
		return false, err
	}
	failed := kgo.AbortingFirstErrPromise(t.session.Client())
	fetches.EachRecord(func(each *kgo.Record) {
		record := &kgo.Record{
			Topic:     t.output(),
			Partition: each.Partition,
			Value:     append(each.Value, " seen"...),
		}
		t.session.Produce(context.Background(), record, failed.Promise())
	})
	try := kgo.TransactionEndTry(failed.Err() == nil && !aborts)
	return t.session.End(context.Background(), try)
}
