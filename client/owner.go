package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// owners are the processes that own namespaces, as far as answers have named them and the client may go there.
//
// Nothing depends on them but where a request goes first: a process that does not own a namespace passes requests on.
type owners struct {
	allow  []func(host string) bool
	scheme string

	mu    sync.Mutex
	of    map[string]*owner // by namespace, "" for what is in none
	avoid map[string]avoided
}

// owner is a process that owns a namespace.
type owner struct {
	address string
	since   time.Time
	heard   atomic.Int64    // when an answer has named it last
	asking  atomic.Bool     // whether it still is the owner
	gone    context.Context // ends some time after another owner was named
	end     func()
}

// avoided is an address that could not be reached.
type avoided struct {
	until time.Time
	pause time.Duration
}

const (
	// connectIn is how long connecting to an owner may take: the given address answers as well.
	connectIn = 2 * time.Second
	// askAfter is how long an owner may take before the given address is asked whether it still is the owner.
	askAfter = 2 * time.Second
	// askWaiting is that for requests that may wait for something to come.
	askWaiting = 10 * time.Second
	// onTheWay is how long an answer may take from an owner that is none any more.
	onTheWay = 500 * time.Millisecond
	// An owner that cannot be reached is not tried again for avoidFirst, then for longer and longer.
	avoidFirst, avoidMost = 5 * time.Second, 5 * time.Minute
	// maxOwners is of how many namespaces the owners are remembered.
	maxOwners = 10_000
)

// newOwners reads [Options].Owners. The error is what is wrong with it.
func newOwners(scheme string, hosts []string) (*owners, error) {
	o := &owners{scheme: scheme, of: map[string]*owner{}, avoid: map[string]avoided{}}
	for _, h := range hosts {
		h = strings.ToLower(h)
		network, err := netip.ParsePrefix(h)
		below, wild := strings.CutPrefix(h, "*")
		switch {
		case err == nil:
			o.allow = append(o.allow, func(host string) bool {
				ip, err := netip.ParseAddr(host)
				return err == nil && network.Contains(ip.Unmap())
			})
		case wild && (below == "" || below[0] == '.' && !strings.ContainsAny(below, "*/:")):
			o.allow = append(o.allow, func(host string) bool { return strings.HasSuffix(host, below) })
		case h != "" && !strings.ContainsAny(h, "*/[] ") && (!strings.Contains(h, ":") || net.ParseIP(h) != nil):
			o.allow = append(o.allow, func(host string) bool { return host == h })
		default:
			return nil, fmt.Errorf("%.80q in Owners is no host", h)
		}
	}

	return o, nil
}

// allowed reports whether requests, and so the token, may go to an address.
func (o *owners) allowed(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != o.scheme || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Path != "" {
		return false
	}
	for _, ok := range o.allow {
		if ok(strings.ToLower(u.Hostname())) {
			return true
		}
	}

	return false
}

// get returns the owner to which a request is to go; nil means the given address.
func (o *owners) get(space string) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.of[space]
}

// learn takes over whom an answer names; base is the given address.
func (o *owners) learn(space, address, base string, asked time.Time) {
	if len(o.allow) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.of[space]
	switch {
	case now != nil && now.address == address:
		now.heard.Store(time.Now().UnixNano())
		return
	case now != nil && asked.Before(now.since): // it was said before
		return
	case address == base || !o.allowed(address) || time.Now().Before(o.avoid[address].until):
		o.drop(space, now)
		return
	case len(o.of) >= maxOwners:
		clear(o.of)
	}
	o.drop(space, now)
	next := &owner{address: address, since: time.Now()}
	next.heard.Store(next.since.UnixNano())
	next.gone, next.end = context.WithCancel(context.Background())
	o.of[space] = next
}

// drop forgets an owner. It is called with mu held.
func (o *owners) drop(space string, now *owner) {
	if now != nil && o.of[space] == now {
		delete(o.of, space)
		time.AfterFunc(onTheWay, now.end)
	}
}

// forget forgets an owner. One that could not be reached is avoided for a while.
func (o *owners) forget(space string, now *owner, unreachable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(space, now)
	if !unreachable {
		return
	}
	if len(o.avoid) > 1000 {
		clear(o.avoid)
	}
	pause := min(cmp.Or(o.avoid[now.address].pause*2, avoidFirst), avoidMost)
	o.avoid[now.address] = avoided{time.Now().Add(pause), pause}
}

// reached notes that an owner has answered.
func (o *owners) reached(now *owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.avoid, now.address)
}

// spaceOf names the namespace of a request, as it is in a path. It is "" for those that are about all.
func (r *request) spaceOf() string {
	if r.space != nil {
		return *r.space
	}
	rest, ok := strings.CutPrefix(r.path, "/v1/namespaces/")
	if !ok {
		return ""
	}
	space, _, _ := strings.Cut(rest, "/")

	return space
}

// ofProcess reports whether a path is about the process that is asked.
func ofProcess(path string) bool { return path == "/ready" || path == "/v1/nodes" }

// direct makes a request to an owner. Where that has surely not begun with it, again is true: it is for the given
// address.
func (c *Client) direct(ctx context.Context, r *request, body []byte, o *owner) (_ *http.Response, _ *Error,
	again bool) {
	space := r.spaceOf()
	began := time.Now()
	trying, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(o.gone, cancel)
	end := func() { unlink(); cancel() }
	var late atomic.Bool
	var connecting *time.Timer
	trace := &httptrace.ClientTrace{
		GetConn: func(string) {
			connecting = time.AfterFunc(connectIn, func() { late.Store(true); cancel() })
		},
		GotConn: func(httptrace.GotConnInfo) { connecting.Stop() },
	}
	asking := c.askOn(ctx, r, o)
	resp, e := c.ask(httptrace.WithClientTrace(trying, trace), r, body, o.address)
	asking()
	if connecting != nil {
		connecting.Stop()
	}
	if e == nil {
		c.owners.reached(o)
		resp.Body = &fromOwner{resp.Body, o, end}

		return resp, nil, false
	}
	end()
	switch {
	case ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it may be that only this client does not reach it
			c.owners.forget(space, o, time.Since(began) > 2*connectIn)
		}
	case e.Status == 0:
		if late.Load() {
			e.Cause = &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("no connection within %v", connectIn)}
		} else if o.gone.Err() != nil {
			e.Cause = errGone
		}
		var untrusted *tls.CertificateVerificationError
		again = neverSent(e.Cause) || errors.As(e.Cause, &untrusted)
		c.owners.forget(space, o, true)
	case !e.owned: // it is no process of them, or knows no owner
		c.owners.forget(space, o, false)
		again = e.notDone() || !e.passing()
	case e.passing():
		c.owners.forget(space, o, false)
	}
	if again {
		c.log.Debug("the owner cannot be asked; the given address is", "op", r.op, "owner", o.address, "error", e)
	}

	return nil, e, again
}

var errGone = errors.New("the process that was asked does not own the data any more")

// askOn asks the given address, while an owner takes its time to answer, whether it still is the owner: one that was
// paused, or has lost its network, would be waited for otherwise. The returned function ends that.
func (c *Client) askOn(ctx context.Context, r *request, o *owner) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	first := askAfter
	if r.wait > 0 {
		first = min(first+r.wait, askWaiting)
	}
	t := time.AfterFunc(first, func() {
		for next, more := first, true; more; next = min(2*next, c.silence) {
			if time.Since(time.Unix(0, o.heard.Load())) >= askAfter && o.asking.CompareAndSwap(false, true) {
				c.probe(ctx, r.spaceOf())
				o.asking.Store(false)
			}
			more = sleep(ctx, next)
		}
	})

	return func() {
		cancel()
		t.Stop()
	}
}

// probe asks the given address for the owner of a namespace.
func (c *Client) probe(ctx context.Context, space string) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	r := &request{op: "owner", method: http.MethodGet, path: "/v1/token", space: &space}
	if space != "" {
		r.path = "/v1/namespaces/" + space
	}
	if resp, e := c.ask(ctx, r, nil, c.base); e == nil {
		_ = resp.Body.Close()
	}
}

// fromOwner is the body of an answer of an owner.
type fromOwner struct {
	io.ReadCloser
	o   *owner
	end func()
}

func (b *fromOwner) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && b.o.gone.Err() != nil {
		err = errGone
	}

	return n, err
}

func (b *fromOwner) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
