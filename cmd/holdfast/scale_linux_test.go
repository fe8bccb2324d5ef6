package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/message"
)

// ticks is what a process has used of processors, and its children that have ended.
func ticks(pid string) (parent string, used time.Duration) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", 0 // it has ended
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	for _, field := range fields[11:15] {
		n, _ := strconv.Atoi(field)
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return fields[1], used
}

// serverCPU is what a server of PostgreSQL has used of processors.
func serverCPU(t *testing.T, dir string) (used time.Duration) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	try(t, err)
	pid, _, _ := strings.Cut(string(text), "\n")
	_, used = ticks(pid)
	list, err := filepath.Glob("/proc/[0-9]*")
	try(t, err)
	for _, one := range list {
		if parent, more := ticks(filepath.Base(one)); parent == pid {
			used += more
		}
	}
	return used
}

// TestScale measures what an operation takes with more processes and clusters: not how many there are in a second,
// which is this machine's, but how much of processors, and how many round trips to PostgreSQL. Clients ask any process,
// as behind a load balancer.
func TestScale(t *testing.T) {
	night.Only(t, "TestSpaces and TestClusters say that it works; there is no figure in them")
	const clients, namespaces, operations = 8, 16, 4000
	for clusters := 1; clusters <= 2; clusters++ {
		var proxies []*cutter
		var at []func(string) string
		var dirs []string
		for range clusters {
			address, _ := database(t)
			proxy, through := before(t, address, time.Hour)
			proxies, at, dirs = append(proxies, proxy), append(at, through), append(dirs, dirOf(address))
		}
		for _, processes := range []int{1, 2, 4} {
			var flags []string
			for _, through := range at {
				flags = append(flags, "--engine", through("s"+strconv.Itoa(processes)))
			}
			var list []*process
			for range processes {
				list = append(list, serveClusters(t, flags, "--spaces", strconv.Itoa(4/clusters)))
			}
			for _, p := range list {
				p.eventually("shared", func() bool {
					has := map[string]int{}
					for _, s := range p.nodes().Spaces {
						has[s.Owner]++
					}
					return len(has) == processes && has[""] == 0 && has[list[0].url] == 4/processes
				})
			}
			var names []*client.Namespace // of each process, behind each other
			for i, p := range list {
				for n := range namespaces {
					if i == 0 {
						_, err := p.api(client.Options{}).CreateNamespace(t.Context(), api.NewNamespace{ID: fmt.Sprintf("n%d", n)})
						try(t, err)
					}
					names = append(names, p.api(client.Options{}).Namespace(fmt.Sprintf("n%d", n)))
				}
			}
			used := func() (own, servers time.Duration, trips int64) {
				for _, p := range list {
					own += p.cpu()
				}
				for _, dir := range dirs {
					servers += serverCPU(t, dir)
				}
				for _, p := range proxies {
					trips += p.trips.Load()
				}
				return own, servers, trips
			}
			measure := func(what string, count int, do func()) {
				own, servers, trips := used()
				began := time.Now()
				do()
				took := time.Since(began)
				afterOwn, afterServers, afterTrips := used()
				per := func(d time.Duration) string {
					return strconv.FormatInt((d/time.Duration(count)).Microseconds(), 10) + " µs"
				}
				t.Logf("%d clusters, %d processes, %s: processes %s, PostgreSQL %s, %.2f round trips; within %v", clusters,
					processes, what, per(afterOwn-own), per(afterServers-servers),
					float64(afterTrips-trips)/float64(count), took.Round(time.Millisecond))
			}
			each := func(do func(ctx context.Context, i int, n *client.Namespace) error) {
				var next atomic.Int64
				var work sync.WaitGroup
				for range clients {
					work.Go(func() {
						for i := int(next.Add(1)) - 1; i < operations; i = int(next.Add(1)) - 1 {
							if err := do(t.Context(), i, names[(i*7)%len(names)]); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				work.Wait()
			}
			write := func(ctx context.Context, i int, n *client.Namespace) error {
				_, err := n.Write(ctx, fmt.Sprintf("s-%d", i%8), message.Message{Type: "T", Data: []byte(`{"n":1}`)})
				return err
			}
			each(write) // what is asked for the first time is not counted
			rest := 5
			measure("a second at rest", rest, func() { time.Sleep(time.Duration(rest) * time.Second) })
			measure("a write", operations, func() { each(write) })
			measure("a read of the last message", operations, func() {
				each(func(ctx context.Context, i int, n *client.Namespace) error {
					_, err := n.LastMessage(ctx, fmt.Sprintf("s-%d", i%8), "")
					return err
				})
			})
			for _, p := range list {
				p.kill()
			}
		}
	}
}

// TestFollowersMany: very many clients follow, through all processes, and each sees what is written.
func TestFollowersMany(t *testing.T) {
	t.Parallel() // it waits
	followers := night.Or(10_000, 400)
	const namespaces = 16
	address := shared(t)
	f := startFleet(t, address("followers"), 4, 4)
	memory := func(what string) {
		for i, p := range f.list {
			t.Logf("%s: process %d has %d MiB, and used %v", what, i, p.memory()>>20, p.cpu())
		}
	}
	memory("before")
	for i := range namespaces {
		_, err := f.list[0].api(client.Options{}).CreateNamespace(t.Context(), api.NewNamespace{ID: fmt.Sprintf("n%d", i)})
		try(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var seen atomic.Int64
	var work sync.WaitGroup
	for i := range followers {
		p := f.list[i%len(f.list)]
		c, err := client.New(p.url, client.Options{Token: nodesToken,
			HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}})
		try(t, err)
		work.Go(func() {
			ns := c.Namespace(fmt.Sprintf("n%d", i/len(f.list)%namespaces))
			for _, err := range ns.Follow(ctx, message.Query{Stream: "s-1"}) {
				if err != nil {
					return
				}
				seen.Add(1)
			}
		})
	}
	write := func() {
		for i := range namespaces {
			_, err := f.list[i%len(f.list)].api(client.Options{}).Namespace(fmt.Sprintf("n%d", i)).Write(ctx, "s-1",
				message.Message{Type: "T", Data: []byte(`{}`)})
			try(t, err)
		}
	}
	for round := range 3 {
		began := time.Now()
		write()
		want := int64(followers * (round + 1))
		testkit.Until(t, fmt.Sprint(want, " were seen"), func() bool { return seen.Load() >= want }, f.list[0].log)
		t.Logf("all have seen message %d within %v", round, time.Since(began).Round(time.Millisecond))
		memory(fmt.Sprint("after message ", round))
	}
	stop()
	work.Wait()
	if got := seen.Load(); got != int64(3*followers) {
		t.Errorf("%d messages were seen, not %d", got, 3*followers)
	}
}
