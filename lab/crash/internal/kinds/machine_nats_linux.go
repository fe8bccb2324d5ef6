package kinds

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

const (
	natsStream = "numbers"
	// natsTime bounds a call: a cluster without a leader does not answer. natsBack is how long it may need to come back.
	natsTime = 5 * time.Second
	natsBack = 2 * time.Minute
)

// natsScene is a JetStream on three machines.
type natsScene struct {
	r     *Runner
	lab   *machines.Lab
	sync  bool
	token string
	conn  *nats.Conn
	js    jetstream.JetStream

	mu    sync.Mutex
	last  int
	acked []int
}

// natsSession cuts the power of three machines with a JetStream, all at once, again and again, under publishers that
// wait for each acknowledgement.
func (r *Runner) natsSession(ctx context.Context, c Row, seed uint64, crashes int, t Tally) (err error) {
	lab, err := machines.New(ctx, machines.Options{Dir: r.Dir, Bare: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	s := &natsScene{r: r, lab: lab, sync: c.Engine == NATSSynced, token: crypto.Text()}
	rnd := rand.New(rand.NewPCG(commits.Mix(seed, 1), 0))
	if err = s.start(); err != nil {
		return err
	}
	defer func() { s.conn.Close() }()
	if err = s.make(ctx); err != nil {
		return err
	}

	for round := range crashes {
		var j protocol.Judgement
		if j, err = s.cut(ctx, rnd); err != nil {
			return fmt.Errorf("%s, round %d: %w", byPowerCutOfAll, round+1, err)
		}
		t.Judged(j, false)
		t.Did(byPowerCutOfAll, 1)
		if j.Broken() {
			t.Breaks(&Scene{Row: c}, loss{name: byPowerCutOfAll}.named(round, j))
			return nil
		}
	}

	return nil
}

// start starts the three servers and connects to them.
func (s *natsScene) start() (err error) {
	var hosts []string
	for _, name := range machines.Names() {
		hosts = append(hosts, s.lab.Address(name))
	}
	var group errgroup.Group
	urls := make([]string, len(hosts))
	for i, name := range machines.Names() {
		m := s.lab.Machine(name)
		group.Go(func() (err error) {
			urls[i], err = s.r.StartNATS(NATSNode{Dir: filepath.Join(m.Dir(), "nats"), Token: s.token,
				Sync: s.sync, Name: string(name), Host: hosts[i], Hosts: hosts}, m.StartChild)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.conn, err = nats.Connect(strings.Join(urls, ","), nats.Token(s.token), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	s.js, err = jetstream.New(s.conn)

	return err
}

// make makes the stream, and returns when all replicas are there.
func (s *natsScene) make(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, natsBack)
	defer cancel()

	return machines.Until(ctx, "make a stream", func() (bool, error) {
		short, cancel := context.WithTimeout(ctx, natsTime)
		defer cancel()
		stream, err := s.js.CreateOrUpdateStream(short, jetstream.StreamConfig{
			Name: natsStream, Subjects: []string{natsStream}, Storage: jetstream.FileStorage, Replicas: 3})
		if err != nil {
			return false, err
		}
		info, err := stream.Info(short)

		return err == nil && info.Cluster != nil && info.Cluster.Leader != "" && len(info.Cluster.Replicas) == 2 &&
			!slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current }), err
	})
}

// publish publishes the next number and notes its acknowledgement.
func (s *natsScene) publish(ctx context.Context) error {
	s.mu.Lock()
	s.last++
	n := s.last
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, natsTime)
	defer cancel()
	if _, err := s.js.Publish(ctx, natsStream, []byte(strconv.Itoa(n))); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, n)

	return nil
}

// told is how many numbers were acknowledged.
func (s *natsScene) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.acked)
}

// cut makes one round and judges it.
func (s *natsScene) cut(ctx context.Context, rnd *rand.Rand) (j protocol.Judgement, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	before, want := s.told(), 100+rnd.IntN(200)
	writing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for writing.Err() == nil {
				_ = s.publish(writing) // one that was not acknowledged may be there or not
			}
		})
	}
	err = machines.Until(ctx, "acknowledgements", func() (bool, error) { return s.told() >= before+want, nil })
	if err == nil {
		err = s.lab.PowerOff(ctx, blockdev.Subset(rnd.Uint64()), machines.Names()...)
	}
	stop()
	all.Wait()
	s.conn.Close()
	if err != nil {
		return j, err
	}

	for _, name := range machines.Names() {
		if err := s.lab.Machine(name).PowerOn(ctx); err != nil {
			return j, err
		}
	}
	if err := s.start(); err != nil {
		return j, err
	}
	there, why := s.read(ctx)
	if ctx.Err() != nil {
		return j, ctx.Err()
	}
	if why != nil {
		j.Findings = append(j.Findings, "it did not come back: "+why.Error())
	} else if len(there) == 0 {
		j.Findings = append(j.Findings, "the stream was empty, or had to be made anew")
	}
	j.Acked = s.told() - before
	for i, n := range s.acked {
		switch {
		case !there[n]:
			j.Find(&j.Lost, "the number %d was acknowledged, and is not there", n)
		case i >= before:
			j.Kept++
		}
	}

	return j, nil
}

// read reads the numbers that there are, as a program does that makes its stream where there is none.
func (s *natsScene) read(ctx context.Context) (there map[int]bool, err error) {
	if err := s.make(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, natsBack)
	defer cancel()
	err = machines.Until(ctx, "read", func() (bool, error) {
		short, cancel := context.WithTimeout(ctx, natsTime)
		defer cancel()
		stream, err := s.js.Stream(short, natsStream)
		if err != nil {
			return false, err
		}

		// What is acknowledged now is behind all that there was, and who says so has that.
		ack, err := s.js.Publish(short, natsStream, []byte("0"))
		if err != nil {
			return false, err
		}
		there = map[int]bool{}
		for seq := uint64(1); seq < ack.Sequence; seq++ {
			msg, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			if err != nil {
				return false, err
			}
			n, err := strconv.Atoi(string(msg.Data))
			if err != nil {
				return false, err
			}
			there[n] = true
		}

		return true, nil
	})

	return there, err
}
