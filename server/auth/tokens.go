package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/message"
)

// The classes of errors of this package, in addition to those of packages holdfast and message.
var (
	// ErrNoToken: a request has no token, and needs one.
	ErrNoToken = errors.New("holdfast: no token")
	// ErrMalformed: what was sent as a token is none.
	ErrMalformed = errors.New("holdfast: malformed token")
	// ErrUnknown: there is no such token: it was never made, or revoked, or its namespace was deleted.
	ErrUnknown = errors.New("holdfast: unknown token")
	// ErrExpired: the token's time is over.
	ErrExpired = errors.New("holdfast: token expired")
	// ErrForbidden: the token's role or namespace does not allow it.
	ErrForbidden = errors.New("holdfast: not allowed")
)

func malformed(why string) error {
	return &holdfast.Error{Op: "check token", Class: ErrMalformed, Detail: why}
}

// Token describes a further token.
type Token struct {
	ID          string
	Namespace   string // Everywhere for all
	Role        Role
	Description string
	Created     time.Time
	Expires     time.Time // zero for never
}

// Tokens are the tokens of the namespaces of a message store, and the further ones that are kept beside it. All methods
// may be called from many goroutines at once.
//
// A further token is kept in one key of the engine:
//
//	's' 0 't' ID      version (1 byte, now 1), then a record as JSON
//
// 's' is what the keys of the server begin with; 0 is the length of its name, which is empty; 't' is the table of
// tokens. The record has the SHA-256 of the secret, and of a token for one namespace when that was created, so that a
// namespace that is deleted and made again has none of the old one's tokens.
type Tokens struct {
	engine   holdfast.Engine
	messages *message.Store
	level    holdfast.Level
	now      func() time.Time

	mu      sync.Mutex    // covers writes
	changes atomic.Uint64 // counts them
	cleaned uint64        // Changes of the store, when tokens of deleted namespaces were last removed; covered by mu

	caching sync.RWMutex
	cached  map[[sha256.Size]byte]*entry // by secret's hash; covered by caching
}

const (
	keyPrefix = "s\x00t"
	version   = 1
	maxCached = 1 << 16
	// maxDescription is how many bytes a token's description may have.
	maxDescription = 1024
)

// record is what is kept of a token.
type record struct {
	SHA256           string     `json:"sha256"`
	Namespace        string     `json:"namespace"`
	NamespaceCreated *time.Time `json:"namespaceCreated,omitempty"`
	Role             string     `json:"role"`
	Description      string     `json:"description,omitempty"`
	Created          time.Time  `json:"created"`
	Expires          *time.Time `json:"expires,omitempty"`
}

// entry is the answer to a secret that was found good, while neither tokens nor namespaces change.
type entry struct {
	principal         Principal
	expires           time.Time
	tokens, described uint64 // changes of tokens and of the store's namespaces
}

// Open opens the tokens that are kept in an engine, and removes those of namespaces that are not there any more.
// Neither the engine nor the store may be closed before the last call. Tokens are written at the strongest level that
// the engine gives, so that one that was revoked does not come back. ErrVersion: a newer program made one of them.
func Open(engine holdfast.Engine, messages *message.Store) (*Tokens, error) {
	t := &Tokens{engine: engine, messages: messages, level: engine.Capabilities().Strongest(), now: time.Now,
		cached: map[[sha256.Size]byte]*entry{}}
	t.mu.Lock()
	defer t.mu.Unlock()

	return t, t.removeOrphans(context.Background())
}

// Check returns who has a secret. Errors: ErrNoToken if it is empty, ErrMalformed, ErrUnknown, ErrExpired, and those of
// reading.
func (t *Tokens) Check(ctx context.Context, secret string) (Principal, error) {
	if secret == "" {
		return Principal{}, &holdfast.Error{Op: "check token", Class: ErrNoToken, Remedy: "send Authorization: Bearer TOKEN"}
	}
	if len(secret) > maxSecret {
		return Principal{}, malformed("it is too long")
	}
	// What is looked up is the hash, so the time that it takes tells nothing about other secrets.
	var room [maxSecret]byte
	sum := sha256.Sum256(append(room[:0], secret...))
	tokens, described := t.changes.Load(), t.messages.Changes()
	t.caching.RLock()
	e := t.cached[sum]
	t.caching.RUnlock()
	if e != nil && e.tokens == tokens && e.described == described {
		return e.principal, t.expired(e.expires)
	}
	s, err := Parse(secret)
	if err != nil {
		return Principal{}, err
	}
	e = &entry{tokens: tokens, described: described}
	if s.Namespace != "" {
		e.principal, err = t.own(ctx, s.Namespace, sum)
	} else {
		e.principal, e.expires, err = t.further(ctx, s.ID, sum)
	}
	t.caching.Lock()
	if err != nil {
		delete(t.cached, sum)
	} else {
		if len(t.cached) >= maxCached {
			clear(t.cached)
		}
		t.cached[sum] = e
	}
	t.caching.Unlock()
	if err != nil {
		return Principal{}, err
	}

	return e.principal, t.expired(e.expires)
}

func (t *Tokens) expired(at time.Time) error {
	if at.IsZero() || t.now().Before(at) {
		return nil
	}

	return &holdfast.Error{Op: "check token", Class: ErrExpired, Detail: "on " + at.UTC().Format(time.RFC3339)}
}

func unknown(cause error) error {
	return &holdfast.Error{Op: "check token", Class: ErrUnknown, Cause: cause}
}

// same compares a hash with one that is kept, in constant time.
func same(sum [sha256.Size]byte, kept string) bool {
	b, err := hex.DecodeString(kept)
	return err == nil && subtle.ConstantTimeCompare(sum[:], b) == 1
}

// own checks a namespace's own token.
func (t *Tokens) own(ctx context.Context, namespace string, sum [sha256.Size]byte) (Principal, error) {
	info, err := t.messages.Info(ctx, namespace)
	switch {
	case errors.Is(err, message.ErrNoNamespace), errors.Is(err, message.ErrBadName):
		return Principal{}, unknown(nil)
	case err != nil:
		return Principal{}, err
	case !same(sum, info.TokenSHA256):
		return Principal{}, unknown(nil)
	}
	p := Principal{TokenID: namespacePrefix + namespace, Namespace: namespace, Role: Admin}
	if namespace == message.Default {
		p.Namespace = Everywhere
	}

	return p, nil
}

// further checks a further token.
func (t *Tokens) further(ctx context.Context, id string, sum [sha256.Size]byte) (Principal, time.Time, error) {
	r, err := t.read(id)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return Principal{}, time.Time{}, unknown(nil)
	case err != nil:
		return Principal{}, time.Time{}, err
	case !same(sum, r.SHA256):
		return Principal{}, time.Time{}, unknown(nil)
	}
	if there, err := t.there(ctx, r); err != nil || !there {
		return Principal{}, time.Time{}, cmp.Or(err, unknown(nil))
	}
	k := r.token(id)

	return Principal{TokenID: id, Namespace: k.Namespace, Role: k.Role}, k.Expires, nil
}

// there reports whether the namespace that a token was made for is there.
func (t *Tokens) there(ctx context.Context, r record) (bool, error) {
	if r.Namespace == Everywhere {
		return true, nil
	}
	info, err := t.messages.Info(ctx, r.Namespace)
	if errors.Is(err, message.ErrNoNamespace) {
		return false, nil
	}

	return err == nil && r.NamespaceCreated != nil && info.Created.Equal(*r.NamespaceCreated), err
}

func (r record) token(id string) Token {
	k := Token{ID: id, Namespace: r.Namespace, Description: r.Description, Created: r.Created}
	k.Role, _ = ParseRole(r.Role) // None, which allows nothing, if a newer program has another
	if r.Expires != nil {
		k.Expires = *r.Expires
	}

	return k
}

func (t *Tokens) read(id string) (record, error) {
	value, err := t.engine.Get(nil, []byte(keyPrefix+id))
	if err != nil {
		return record{}, err
	}

	return parse(id, value)
}

// parse reads what is kept of a token.
func parse(id string, value []byte) (r record, err error) {
	fail := func(class, cause error, remedy string) error {
		return &holdfast.Error{Op: "read token", Class: class, Detail: id, Cause: cause, Remedy: remedy}
	}
	if len(value) == 0 || value[0] == 0 {
		return r, fail(holdfast.ErrCorrupt, nil, "revoke it and make another")
	}
	if value[0] > version {
		return r, fail(holdfast.ErrVersion, nil, "use a newer holdfast")
	}
	if err := json.Unmarshal(value[1:], &r); err != nil {
		return r, fail(holdfast.ErrCorrupt, err, "revoke it and make another")
	}

	return r, nil
}

// Create makes a token as k describes it, except for its ID and Created, and returns it with its secret, which nobody
// can find out later.
//
// Errors: ErrBadOption for a role or description that cannot be, and for an expiry that is over;
// message.ErrNoNamespace.
func (t *Tokens) Create(ctx context.Context, k Token) (Token, string, error) {
	bad := func(detail string) (Token, string, error) {
		return Token{}, "", &holdfast.Error{Op: "create token", Class: holdfast.ErrBadOption, Detail: detail}
	}

	now := t.now().UTC()
	switch {
	case k.Role < Read || k.Role > Admin:
		return bad(fmt.Sprintf("the role is %v; it is read, write or admin", k.Role))
	case names.Wrong(k.Description, maxDescription) != "":
		return bad("the description " + names.Wrong(k.Description, maxDescription))
	case !k.Expires.IsZero() && !k.Expires.After(now):
		return bad("it would be expired")
	}
	k.ID, k.Created = random(idDigits), now
	secret := tokenPrefix + k.ID + "_" + random(keyDigits)
	r := record{SHA256: Hash(secret), Namespace: k.Namespace, Role: k.Role.String(),
		Description: k.Description, Created: now}
	if !k.Expires.IsZero() {
		k.Expires = k.Expires.UTC()
		r.Expires = &k.Expires
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.Namespace != Everywhere {
		info, err := t.messages.Info(ctx, k.Namespace)
		if err != nil {
			return Token{}, "", err
		}
		r.NamespaceCreated = &info.Created
	}
	value, err := json.Marshal(r)
	if err != nil {
		return bad(err.Error())
	}
	var b holdfast.Batch
	b.Set([]byte(keyPrefix+k.ID), append([]byte{version}, value...))
	if err := holdfast.Commit(t.engine, &b, t.level); err != nil {
		return Token{}, "", err
	}

	return k, secret, nil
}

// Get describes a token by its id. ErrNotFound: there is none.
func (t *Tokens) Get(ctx context.Context, id string) (Token, error) {
	r, err := t.read(id)
	if err == nil {
		var there bool
		if there, err = t.there(ctx, r); err == nil && !there {
			err = holdfast.ErrNotFound
		}
	}
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrBadKey) {
		return Token{}, &holdfast.Error{Op: "token", Class: holdfast.ErrNotFound, Detail: fmt.Sprintf("%.40q", id)}
	}

	return r.token(id), err
}

// Revoke removes a token: once it returns, the secret opens nothing. ErrNotFound: there is none of that id.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.Get(ctx, id); err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
		return err
	}
	var b holdfast.Batch
	b.Delete([]byte(keyPrefix + id))
	err := holdfast.Commit(t.engine, &b, t.level)
	t.changes.Add(1) // even then: what became of it is not known

	return err
}

// List describes the tokens of a namespace, of all if it is "", and those for all if it is Everywhere; the oldest
// first.
// An error that is ErrCorrupt names those that cannot be read; the others are listed all the same.
func (t *Tokens) List(ctx context.Context, namespace string) ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.removeOrphans(ctx); err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
		return nil, err
	}
	list := []Token{}
	err := t.each(ctx, func(id string, r record) error {
		if namespace == "" || namespace == r.Namespace {
			list = append(list, r.token(id))
		}

		return nil
	})
	slices.SortFunc(list, func(a, b Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })

	return list, err
}

// each calls f for each token. It continues after one that cannot be read.
func (t *Tokens) each(ctx context.Context, f func(id string, r record) error) error {
	var damaged []error
	it := t.engine.Scan(holdfast.Prefix([]byte(keyPrefix)))
	defer it.Close()

	for it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		id := string(it.Key()[len(keyPrefix):])
		r, err := parse(id, it.Value())
		if err == nil {
			err = f(id, r)
		}
		if err != nil {
			damaged = append(damaged, err)
		}
	}

	return errors.Join(append(damaged, it.Err())...)
}

// removeOrphans removes the tokens of namespaces that are not there any more. Check refuses them in any case.
func (t *Tokens) removeOrphans(ctx context.Context) error {
	changes := t.messages.Changes()
	if t.cleaned == changes && changes != 0 {
		return nil
	}
	var b holdfast.Batch
	damaged := t.each(ctx, func(id string, r record) error {
		there, err := t.there(ctx, r)
		if err == nil && !there {
			b.Delete([]byte(keyPrefix + id))
		}

		return err
	})
	if damaged != nil && !errors.Is(damaged, holdfast.ErrCorrupt) {
		return damaged
	}
	if b.Len() > 0 {
		if err := holdfast.Commit(t.engine, &b, t.level); errors.Is(err, holdfast.ErrFull) {
			return nil // they open nothing; the next call removes them
		} else if err != nil {
			return err
		}
	}
	t.cleaned = changes

	return nil
}
