package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/kv"
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

// Tokens are the own tokens of namespaces, and the further ones. All methods may be called from many goroutines at
// once.
//
// They are kept in a bucket of a database, called tokens in the bucket holdfast, by their ids:
//
//	ns_NAMESPACE    the own token of a namespace
//	ID              a further one
//
// A value is a version (1 byte, now 1) and a record as JSON. It has the SHA-256 of the secret. Namespaces are made and
// deleted together with their tokens, in one transaction.
type Tokens struct {
	db    *kv.DB // at the strongest level
	there func(tx *kv.Tx, namespace string) error
	now   func() time.Time

	// Revoked is called when tokens may have been revoked, before Revoke and SetOwn return; nil for nothing. It is set
	// before the first of them.
	Revoked func(ctx context.Context)

	changes atomic.Uint64 // counts them

	caching sync.RWMutex
	cached  map[[sha256.Size]byte]*entry // by secret's hash; covered by caching
}

const (
	version   = 1
	maxCached = 1 << 16
	// maxDescription is how many bytes a token's description may have.
	maxDescription = 1024
)

func bucket(tx *kv.Tx) *kv.Bucket { return tx.Bucket("holdfast", "tokens") }

// ownID is the id of a namespace's own token.
func ownID(namespace string) string { return namespacePrefix + namespace }

// record is what is kept of a token.
type record struct {
	SHA256      string     `json:"sha256"`
	Namespace   string     `json:"namespace"`
	Role        string     `json:"role"`
	Description string     `json:"description,omitempty"`
	Created     time.Time  `json:"created"`
	Expires     *time.Time `json:"expires,omitempty"`
}

// entry is the answer to a secret that was found good, while tokens do not change.
type entry struct {
	principal Principal
	expires   time.Time
	changes   uint64
}

// Open opens the tokens that are kept in a database. there tells whether there is a namespace: its error is that of
// those who make a token for it. Tokens are written at the strongest level that the engine gives, so that one that was
// revoked does not come back. ErrVersion: a newer program made one of them.
func Open(db *kv.DB, there func(tx *kv.Tx, namespace string) error) (*Tokens, error) {
	t := &Tokens{db: db.At(db.Engine().Capabilities().Strongest()), there: there, now: time.Now,
		cached: map[[sha256.Size]byte]*entry{}}
	err := t.db.Latest(context.Background(), func(tx *kv.Tx) error {
		return each(tx, func(string, record) {})
	})
	if errors.Is(err, holdfast.ErrVersion) || err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
		return nil, err
	}

	return t, nil
}

// Check returns who has a secret. Errors: ErrNoToken if it is empty, ErrMalformed, ErrUnknown, ErrExpired, and those of
// reading.
func (t *Tokens) Check(ctx context.Context, secret string) (Principal, error) {
	p, _, err := t.CheckUntil(ctx, secret)
	return p, err
}

// CheckUntil is Check that also tells when the token expires, zero for never.
func (t *Tokens) CheckUntil(ctx context.Context, secret string) (Principal, time.Time, error) {
	if secret == "" {
		return Principal{}, time.Time{}, &holdfast.Error{Op: "check token", Class: ErrNoToken,
			Remedy: "send Authorization: Bearer TOKEN"}
	}
	if len(secret) > maxSecret {
		return Principal{}, time.Time{}, malformed("it is too long")
	}
	// What is looked up is the hash, so the time that it takes tells nothing about other secrets.
	var room [maxSecret]byte
	sum := sha256.Sum256(append(room[:0], secret...))
	changes := t.changes.Load()
	t.caching.RLock()
	e := t.cached[sum]
	t.caching.RUnlock()
	if e != nil && e.changes == changes {
		return e.principal, e.expires, t.expired(e.expires)
	}
	s, err := Parse(secret)
	if err != nil {
		return Principal{}, time.Time{}, err
	}
	e = &entry{changes: changes}
	e.principal, e.expires, err = t.known(ctx, s, sum)
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
		return Principal{}, time.Time{}, err
	}

	return e.principal, e.expires, t.expired(e.expires)
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

// known finds a secret.
func (t *Tokens) known(ctx context.Context, s Secret, sum [sha256.Size]byte) (Principal, time.Time, error) {
	id := s.ID
	if s.Namespace != "" {
		id = ownID(s.Namespace)
	}
	r, err := t.read(ctx, id)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return Principal{}, time.Time{}, unknown(nil)
	case err != nil:
		return Principal{}, time.Time{}, err
	case !same(sum, r.SHA256):
		return Principal{}, time.Time{}, unknown(nil)
	}
	k := r.token(id)
	if s.Namespace == message.Default {
		k.Namespace = Everywhere
	}

	return Principal{TokenID: id, Namespace: k.Namespace, Role: k.Role}, k.Expires, nil
}

func (r record) token(id string) Token {
	k := Token{ID: id, Namespace: r.Namespace, Description: r.Description, Created: r.Created}
	k.Role, _ = ParseRole(r.Role) // None, which allows nothing, if a newer program has another
	if r.Expires != nil {
		k.Expires = *r.Expires
	}

	return k
}

// read reads what is kept of a token. ErrNotFound: there is none of that id.
func (t *Tokens) read(ctx context.Context, id string) (r record, err error) {
	err = t.db.Latest(ctx, func(tx *kv.Tx) error {
		r, err = get(tx, id)
		return err
	})

	return r, err
}

func get(tx *kv.Tx, id string) (record, error) {
	value, err := bucket(tx).Get([]byte(id))
	if errors.Is(err, holdfast.ErrBadKey) { // no token has an id of such a length
		err = holdfast.ErrNotFound
	}
	if err != nil {
		return record{}, err
	}

	return parse(id, value)
}

func put(tx *kv.Tx, id string, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}

	return bucket(tx).Put([]byte(id), append([]byte{version}, value...))
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
	case k.Role == None || int(k.Role) >= len(roles):
		return bad(fmt.Sprintf("the role is %v; it is read, query, write or admin", k.Role))
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
	err := t.db.Update(ctx, func(tx *kv.Tx) error {
		if k.Namespace != Everywhere {
			if err := t.there(tx, k.Namespace); err != nil {
				return err
			}
		}

		return put(tx, k.ID, r)
	})
	if err != nil {
		return Token{}, "", err
	}

	return k, secret, nil
}

// Get describes a further token by its id. ErrNotFound: there is none.
func (t *Tokens) Get(ctx context.Context, id string) (Token, error) {
	r, err := t.read(ctx, id)
	if own(id) || errors.Is(err, holdfast.ErrNotFound) {
		return Token{}, missing(id)
	}

	return r.token(id), err
}

func own(id string) bool { return strings.HasPrefix(id, namespacePrefix) }

func missing(id string) error {
	return &holdfast.Error{Op: "token", Class: holdfast.ErrNotFound, Detail: fmt.Sprintf("%.40q", id)}
}

// Revoke removes a further token: once it returns, the secret opens nothing. ErrNotFound: there is none of that id.
func (t *Tokens) Revoke(ctx context.Context, id string) error {
	defer t.revoked(ctx) // even after an error: what became of it is not known

	return t.db.Update(ctx, func(tx *kv.Tx) error {
		_, err := get(tx, id)
		switch {
		case own(id), errors.Is(err, holdfast.ErrNotFound):
			return missing(id)
		case err != nil && !errors.Is(err, holdfast.ErrCorrupt):
			return err
		}

		return bucket(tx).Delete([]byte(id))
	})
}

// List describes the further tokens of a namespace, of all if it is "", and those for all if it is Everywhere; the
// oldest first.
// An error that is ErrCorrupt names those that cannot be read; the others are listed all the same.
func (t *Tokens) List(ctx context.Context, namespace string) ([]Token, error) {
	list := []Token{}
	err := t.db.Latest(ctx, func(tx *kv.Tx) error {
		return each(tx, func(id string, r record) {
			if !own(id) && (namespace == "" || namespace == r.Namespace) {
				list = append(list, r.token(id))
			}
		})
	})
	slices.SortFunc(list, func(a, b Token) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })

	return list, err
}

// each calls f for each token. It continues after one that cannot be read, which the error names.
func each(tx *kv.Tx, f func(id string, r record)) error {
	var damaged []error

	for key, value := range bucket(tx).All() {
		if err := tx.Context().Err(); err != nil {
			return err
		}
		r, err := parse(string(key), value)
		if err != nil {
			damaged = append(damaged, err)
		} else {
			f(string(key), r)
		}
	}

	return errors.Join(damaged...)
}

// HasOwn reports whether a namespace has a token of its own.
func (t *Tokens) HasOwn(ctx context.Context, namespace string) (bool, error) {
	_, err := t.read(ctx, ownID(namespace))
	if errors.Is(err, holdfast.ErrNotFound) {
		return false, nil
	}

	return err == nil, err
}

// SetOwn gives a namespace another token of its own: once it returns, the old one is invalid. message.ErrNoNamespace:
// there is no such namespace.
func (t *Tokens) SetOwn(ctx context.Context, namespace, secret string) error {
	defer t.revoked(ctx)

	return t.db.Update(ctx, func(tx *kv.Tx) error {
		if err := t.there(tx, namespace); err != nil {
			return err
		}

		return AddOwn(tx, namespace, secret)
	})
}

// AddOwn gives a namespace a token of its own, in the transaction that makes the namespace.
func AddOwn(tx *kv.Tx, namespace, secret string) error {
	return put(tx, ownID(namespace), record{SHA256: Hash(secret), Namespace: namespace, Role: Admin.String(),
		Created: tx.Now().UTC()})
}

// maxRemoved bounds what one transaction removes: an engine may not take many deletes at once.
const maxRemoved = 10_000

// RemoveFurther removes some of a namespace's further tokens, in the order of their ids, from the first that comes
// after an id on. It returns the id to go on with, or "" if it has removed none, as RemoveAll can remove what is left.
// When the transaction has returned, with an error too, the caller calls Changed.
func RemoveFurther(tx *kv.Tx, namespace, after string) (next string, err error) {
	ids, err := idsOf(tx, namespace, after, maxRemoved)
	if err != nil || len(ids) < maxRemoved {
		return "", err
	}
	for _, id := range ids {
		if err := bucket(tx).Delete([]byte(id)); err != nil {
			return "", err
		}
	}

	return ids[maxRemoved-1], nil
}

// RemoveAll removes the tokens of a namespace, in the transaction that deletes the namespace. When that has returned,
// with an error too, the caller calls Changed. RemoveFurther comes before it, where there may be many.
func RemoveAll(tx *kv.Tx, namespace string) error {
	ids, err := idsOf(tx, namespace, "", math.MaxInt)
	if err != nil {
		return err
	}
	for _, id := range append(ids, ownID(namespace)) { // which may be one that cannot be read
		if err := bucket(tx).Delete([]byte(id)); err != nil {
			return err
		}
	}

	return nil
}

// idsOf returns the ids of up to so many further tokens of a namespace, from the first that comes after an id on.
func idsOf(tx *kv.Tx, namespace, after string, most int) (ids []string, err error) {
	name := []byte(`"` + namespace + `"`) // as JSON has it: none of its characters is escaped there
	own := ownID(namespace)

	for key, value := range bucket(tx).Range(holdfast.Range{Lo: append([]byte(after), 0)}) {
		if err := tx.Context().Err(); err != nil {
			return nil, err
		}
		if !bytes.Contains(value, name) { // others wait for the transaction, and most tokens are of other namespaces
			continue
		}
		r, err := parse(string(key), value)
		if err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
			return nil, err
		}
		if err == nil && r.Namespace == namespace && string(key) != own {
			if ids = append(ids, string(key)); len(ids) == most {
				break
			}
		}
	}

	return ids, nil
}

// Changed lets tokens be read anew that are remembered as good.
func (t *Tokens) Changed() { t.changes.Add(1) }

func (t *Tokens) revoked(ctx context.Context) {
	t.Changed()
	if t.Revoked != nil {
		t.Revoked(ctx)
	}
}
