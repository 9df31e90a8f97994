package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login is the way of a client into a broker.
type login struct {
	Servers     string
	Topic       string
	Protocol    string
	Mechanism   string
	User        string
	Password    string
	TokenAuth   bool
	Token       string
	Authority   string
	Certificate string
	Key         string
}

// order is the only command: the counterpart of Exchange.java, which documents it.
type order struct {
	Clients []login
	Count   int
	Seconds float64
}

// obey reads commands as JSON, one per line, and answers each with one line.
func obey() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var command order
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			return err
		}
		answer := map[string]any{}
		if read, err := command.run(); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["value"] = read
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (o order) run() ([][]string, error) {
	read := make([][]string, len(o.Clients))
	failed := make([]error, len(o.Clients))
	var running sync.WaitGroup
	for index, each := range o.Clients {
		running.Add(1)
		go func() {
			defer running.Done()
			read[index], failed[index] = o.exchange(each)
		}()
	}
	running.Wait()
	return read, errors.Join(failed...)
}

func (o order) exchange(l login) (read []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	opts, err := l.options()
	if err != nil {
		return nil, err
	}
	writer, err := kgo.NewClient(
		append(opts, kgo.TransactionalID(l.Topic), kgo.DefaultProduceTopic(l.Topic))...)
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	if err = write(ctx, writer, "aborted", kgo.TryAbort); err != nil {
		return nil, err
	}
	reader, err := kgo.NewClient(append(opts,
		kgo.ConsumerGroup(l.Topic),
		kgo.ConsumeTopics(l.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var end time.Time
	for number := 0; number < o.Count || time.Now().Before(end); number++ {
		if err = write(ctx, writer, strconv.Itoa(number), kgo.TryCommit); err != nil {
			return nil, err
		}
		for len(read) <= number {
			fetches := reader.PollFetches(ctx)
			if err = fetches.Err(); err != nil {
				return nil, err
			}
			fetches.EachRecord(func(each *kgo.Record) { read = append(read, string(each.Value)) })
		}
		if number == 0 {
			end = time.Now().Add(time.Duration(o.Seconds * float64(time.Second)))
		}
	}
	return read, nil
}

// write writes a record in a transaction of its own.
func write(ctx context.Context, c *kgo.Client, value string, how kgo.TransactionEndTry) error {
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	if err := c.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
		return err
	}
	return c.EndTransaction(ctx, how)
}

func (l login) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(l.Servers),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if strings.HasSuffix(l.Protocol, "SSL") {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM([]byte(l.Authority))
		config := &tls.Config{RootCAs: trusted}
		if l.Certificate != "" {
			own, err := tls.X509KeyPair([]byte(l.Certificate), []byte(l.Key))
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{own}
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	if !strings.HasPrefix(l.Protocol, "SASL") {
		return opts, nil
	}
	byPassword := scram.Auth{User: l.User, Pass: l.Password, IsToken: l.TokenAuth}
	known := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: l.User, Pass: l.Password}.AsMechanism(),
		"SCRAM-SHA-256": byPassword.AsSha256Mechanism(),
		"SCRAM-SHA-512": byPassword.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: l.Token}.AsMechanism(),
	}
	if known[l.Mechanism] == nil {
		return nil, fmt.Errorf("unknown mechanism %q", l.Mechanism)
	}
	return append(opts, kgo.SASL(known[l.Mechanism])), nil
}
