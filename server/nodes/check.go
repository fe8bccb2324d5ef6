package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
)

// lastGood is for how long a token counts as good for what a process says of itself, when nobody can be asked.
const lastGood = 10 * time.Minute

// known are tokens that were good, by their hashes.
type known struct {
	mu   sync.Mutex
	good map[string]good
}

type good struct {
	auth.Principal
	at time.Time
}

// check says who has a token, for what a process says of itself. The owner of the first space is asked; while there is
// none, operators need that all the more, so tokens that were good of late are.
func (n *Node) check(ctx context.Context, secret string) (auth.Principal, error) {
	if o := n.enter(0); o != nil {
		defer n.exit(o)
		return o.server.Tokens().Check(ctx, secret)
	}
	if _, err := auth.Parse(secret); err != nil {
		return auth.Principal{}, err
	}
	p, err := n.ask(ctx, secret)
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	hash := auth.Hash(secret)
	switch {
	case err == nil:
		if len(n.known.good) > 1000 {
			clear(n.known.good)
		}
		n.known.good[hash] = good{p, time.Now()}
	case errors.Is(err, auth.ErrUnknown) || errors.Is(err, auth.ErrExpired):
		delete(n.known.good, hash)
	default:
		if g, ok := n.known.good[hash]; ok && time.Since(g.at) < lastGood {
			return g.Principal, nil
		}
	}

	return p, err
}

// ask asks the owner of the first space who has a token.
func (n *Node) ask(ctx context.Context, secret string) (p auth.Principal, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://holdfast/v1/token", nil)
	if err != nil {
		return p, err
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	w := &answer{header: http.Header{}}
	n.find(w, r, 0)
	switch w.status {
	case http.StatusOK:
		var t api.Token
		if err := json.Unmarshal(w.body, &t); err != nil {
			return p, err
		}
		role, _ := auth.ParseRole(t.Role)

		return auth.Principal{TokenID: t.ID, Namespace: t.Namespace, Role: role}, nil
	case http.StatusUnauthorized:
		return p, &unauthorized{}
	default:
		return p, noOwner()
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
