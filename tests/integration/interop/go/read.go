package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

const last = "the last"

// read prints each committed record of the output, and ends after the last of each partition.
func read(r route, partitions int) error {
	from := map[int32]kgo.Offset{}
	for index := range partitions {
		from[int32(index)] = kgo.NewOffset().AtStart()
	}
	opts := append(
		r.common(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.output(): from}))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	for len(from) > 0 {
		client.PollFetches(context.Background()).EachRecord(func(each *kgo.Record) {
			if string(each.Value) == last {
				delete(from, each.Partition)
			} else {
				tell(each.Partition, string(each.Value))
			}
		})
	}
	return nil
}
