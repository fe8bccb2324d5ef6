package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
)

// lastGood is for how long a token counts as good for what a process says of itself, when nobody can be asked.
const lastGood = 10 * time.Minute

// known are tokens that were good, by their hashes.
type known struct {
	mu    sync.Mutex
	good  map[string]good
	at    feed      // of revocations, how far they were heard
	heard time.Time // when that was
}

type good struct {
	auth.Principal
	expires time.Time // zero for never
	at      time.Time
	of      feed // the revocations that were known of when it was asked for
}

// expired reports whether its time is over.
func (g good) expired() bool { return !g.expires.IsZero() && !time.Now().Before(g.expires) }

// check says who has a token. The owner of the first space is asked. Its answer is good until it tells of tokens that
// are gone, and while nobody owns that space for some time, so that the other spaces go on.
func (n *Node) check(ctx context.Context, secret string) (auth.Principal, error) {
	if o := n.enter(0); o != nil {
		defer n.exit(o)
		of := o.changes.now()
		p, until, err := o.server.Tokens().CheckUntil(ctx, secret)
		if err == nil && n.several() { // for when this process has the first space no more
			n.remember(auth.Hash(secret), good{Principal: p, expires: until, at: time.Now(), of: of})
		}

		return p, err
	}
	if _, err := auth.Parse(secret); err != nil {
		return auth.Principal{}, err
	}
	several, hash := n.several(), auth.Hash(secret)
	n.known.mu.Lock()
	g, known := n.known.good[hash]
	of, heard := n.known.at, n.known.heard
	n.known.mu.Unlock()
	if several && known && g.of == of && of.Run != "" && time.Since(heard) < lastGood && !g.expired() {
		return g.Principal, nil
	}
	now, err := n.ask(ctx, secret)
	now.of = of
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	switch {
	case err == nil:
		n.known.put(hash, now)
	case errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired):
		delete(n.known.good, hash)
	case !several && known && time.Since(g.at) < lastGood && !g.expired():
		// Here it is for what a process says of itself: operators need that all the more while nobody can be asked.
		return g.Principal, nil
	}

	return now.Principal, err
}

// remember remembers a token that is good.
func (n *Node) remember(hash string, g good) {
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	n.known.put(hash, g)
}

// put is called with mu held.
func (k *known) put(hash string, g good) {
	if len(k.good) >= maxKnown {
		clear(k.good)
	}
	k.good[hash] = g
}

// maxKnown is how many tokens are remembered.
const maxKnown = 1 << 16

// ask asks the owner of the first space who has a token.
func (n *Node) ask(ctx context.Context, secret string) (g good, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://holdfast/v1/token", nil)
	if err != nil {
		return g, err
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	w := &answer{header: http.Header{}}
	n.find(w, r, where{})
	switch w.status {
	case http.StatusOK:
		var t api.Token
		if err := json.Unmarshal(w.body, &t); err != nil {
			return g, err
		}
		role, _ := auth.ParseRole(t.Role)

		g = good{Principal: auth.Principal{TokenID: t.ID, Namespace: t.Namespace, Role: role}, at: time.Now()}
		if t.Expires != nil {
			g.expires = *t.Expires
		}

		return g, nil
	case http.StatusUnauthorized:
		return g, &unauthorized{}
	case http.StatusTooManyRequests:
		return g, &holdfast.Error{Class: problem.ErrTooMany, Detail: "tokens are asked for too often"}
	default:
		return g, n.noOwner(0)
	}
}

type unauthorized struct{}

func (*unauthorized) Error() string { return auth.ErrUnknown.Error() }
func (*unauthorized) Unwrap() error { return auth.ErrUnknown }

// answer is one that is read here.
type answer struct {
	header http.Header
	status int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)

	return len(b), nil
}
