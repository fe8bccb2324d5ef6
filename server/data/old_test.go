package data_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

// fill writes to an engine what testdata/old-tokens.txt has, and returns the secrets there.
func fill(t *testing.T, e holdfast.Engine) (secrets map[string]string) {
	t.Helper()
	f, err := os.Open("testdata/old-tokens.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	secrets = map[string]string{}
	var b holdfast.Batch
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "secret "); ok {
			name, secret, _ := strings.Cut(rest, " ")
			secrets[name] = secret
			continue
		}
		var key, value string
		if _, err := fmt.Sscanf(line, "key %q %q", &key, &value); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		b.Set([]byte(key), []byte(value))
	}
	if err := errors.Join(lines.Err(), holdfast.Commit(e, &b, e.Capabilities().Strongest())); err != nil {
		t.Fatal(err)
	}
	return secrets
}

// keys lists what an engine has, as text.
func keys(t *testing.T, e holdfast.Engine) (all []string) {
	t.Helper()
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		all = append(all, strconv.Quote(string(it.Key()))+" "+strconv.Quote(string(it.Value())))
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestOldTokens opens a directory of a version that kept tokens in the message store and in keys of the server: they
// are good as before, and are not there any more.
func TestOldTokens(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	e, err := logtree.Open(dir, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secrets := fill(t, e)
	revoked := false
	for range 3 {
		d, err := data.Open(e, data.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]auth.Principal{
			"own:default": {TokenID: "ns_default", Namespace: auth.Everywhere, Role: auth.Admin},
			"own:shop":    {TokenID: "ns_shop", Namespace: "shop", Role: auth.Admin},
			"own:again":   {TokenID: "ns_again", Namespace: "again", Role: auth.Admin},
			"everywhere":  {TokenID: "a46ff82507513068", Namespace: auth.Everywhere, Role: auth.Admin},
			"reader":      {TokenID: "710069a62b43cf18", Namespace: "shop", Role: auth.Read},
			"writer":      {TokenID: "7d9676ac7394cd6a", Namespace: "shop", Role: auth.Write},
			"own:gone":    {}, // of a namespace that is not there
			"orphan":      {}, // of an earlier namespace of the same id
		} {
			if name == "writer" && revoked {
				want = auth.Principal{}
			}
			switch p, err := d.Tokens().Check(ctx, secrets[name]); {
			case want == auth.Principal{} && !errors.Is(err, auth.ErrUnknown):
				t.Errorf("%s: %+v, %v", name, p, err)
			case want != auth.Principal{} && (p != want || err != nil):
				t.Errorf("%s: %+v, %v; want %+v", name, p, err, want)
			}
		}
		list, err := d.Tokens().List(ctx, "shop")
		if !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the damaged token: %v", err)
		}
		if len(list) == 0 || list[0].Description != "reader" || list[0].Expires.Year() != 2200 {
			t.Errorf("%+v", list)
		}
		infos, err := d.Namespaces(ctx, "", 0)
		var ids []string
		for _, info := range infos {
			ids = append(ids, info.ID)
			if got, err := d.Info(ctx, info.ID); err != nil || !got.Created.Equal(info.Created) || got.Created.Year() != 2026 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if want := []string{"again", "default", "plain", "shop"}; err != nil || !slices.Equal(ids, want) {
			t.Fatalf("%q, %v", ids, err)
		}
		if shop := infos[3]; shop.Description != "Orders" || string(shop.Metadata) != `{"plan":"small"}` {
			t.Errorf("%+v", shop)
		}
		if has, err := d.Tokens().HasOwn(ctx, "plain"); has || err != nil {
			t.Error(has, err)
		}
		if counts, _, err := d.Messages().Totals(ctx, "shop"); counts.Messages != 1 || err != nil {
			t.Errorf("%+v, %v", counts, err)
		}
		for _, line := range keys(t, e) {
			if strings.HasPrefix(line, `"s\x00t`) || strings.HasPrefix(line, `"m`) && strings.Contains(line, "token") {
				t.Errorf("an old token is left: %s", line)
			}
		}
		if !revoked {
			revoked = true
			if err := d.Tokens().Revoke(ctx, "7d9676ac7394cd6a"); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(d.Close(), e.Close()); err != nil {
			t.Fatal(err)
		}
		if e, err = logtree.Open(dir, holdfast.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// refusing is an engine that refuses batches for which its function says so.
type refusing struct {
	holdfast.Engine
	refuses func(b *holdfast.Batch) bool
}

var errRefused = errors.New("refused")

func (r *refusing) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if r.refuses != nil && r.refuses(b) {
		return holdfast.Receipt{}, errRefused
	}
	return r.Engine.Apply(b, level)
}

// touches returns which of these parts of keys and values a batch has.
func touches(b *holdfast.Batch, parts ...string) (found []string) {
	for _, part := range parts {
		for op := range b.Ops() {
			if strings.Contains(string(op.Key)+" "+string(op.Value), part) {
				found = append(found, part)
				break
			}
		}
	}
	return found
}

// Tokens are taken over by one commit: if it is refused, everything is as it was.
func TestOldTokensAtOnce(t *testing.T) {
	e := &refusing{Engine: mem.New()}
	secrets := fill(t, e)
	before := keys(t, e)
	refused := 0
	e.refuses = func(b *holdfast.Batch) bool {
		found := touches(b, "s\x00t", "m\x00nshop", "namespaces", "ns_shop", "7d9676ac7394cd6a")
		if len(found) > 0 {
			refused++
		}
		if len(found) != 0 && len(found) != 5 {
			t.Errorf("a batch has %q, and not all of it", found)
		}
		return len(found) > 0
	}
	if _, err := data.Open(e, data.Options{Level: holdfast.Memory}); !errors.Is(err, errRefused) || refused != 1 {
		t.Fatalf("%v, %d batches refused", err, refused)
	}
	if after := keys(t, e); !slices.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	e.refuses = nil
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Tokens().Check(t.Context(), secrets["writer"]); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// small is an engine that takes small batches only.
type small struct{ refusing }

func (s *small) Capabilities() holdfast.Capabilities {
	c := s.refusing.Capabilities()
	c.MaxBatchSize = 64 << 10
	return c
}

// More tokens and namespaces than a batch takes are taken over by several, from wherever that was interrupted.
func TestManyOldTokens(t *testing.T) {
	const n = 1000
	ctx := t.Context()
	e := &small{refusing{Engine: mem.New()}}
	secrets := fill(t, e)
	var b holdfast.Batch
	b.Set([]byte("m\x00m"), binary.BigEndian.AppendUint64([]byte{1}, 6+n))
	for i := range n {
		id, created := fmt.Sprintf("many-%04d", i), "2026-11-27T12:55:22.121757859Z"
		own, further := auth.NewNamespaceSecret(id), fmt.Sprintf("hf_%016x_%064x", i, i)
		secrets["own:"+id], secrets[id] = own, further
		b.Set([]byte("m\x00n"+id), fmt.Appendf(nil, `{"number":%d,"description":"","created":%q,"token":%q}`, 6+i, created,
			auth.Hash(own)))
		b.Set(fmt.Appendf(nil, "s\x00t%016x", i), fmt.Appendf(nil, "\x01"+
			`{"sha256":%q,"namespace":%q,"namespaceCreated":%q,"role":"read","created":%q}`, auth.Hash(further), id, created,
			created))
	}
	if err := holdfast.Commit(e.Engine, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}

	rounds := 0
	for again := true; again; rounds++ {
		batches := 0
		e.refuses = func(*holdfast.Batch) bool { batches++; return batches > 2 }
		d, err := data.Open(e, data.Options{Level: holdfast.Memory})
		if again = errors.Is(err, errRefused); again {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, secret := range secrets {
			if name == "own:gone" || name == "orphan" {
				continue
			}
			if _, err := d.Tokens().Check(ctx, secret); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if list, err := d.Namespaces(ctx, "", 0); len(list) != n+4 || err != nil {
			t.Errorf("%d namespaces, %v", len(list), err)
		}
		for _, line := range keys(t, e) {
			if strings.HasPrefix(line, `"s\x00t`) || strings.HasPrefix(line, `"m`) && strings.Contains(line, "token") {
				t.Errorf("an old token is left: %s", line)
			}
		}
		e.refuses = nil
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if rounds < 5 {
		t.Errorf("it was interrupted %d times only", rounds-1)
	}
	fill(t, e) // is not looked at again
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Tokens().Revoke(ctx, "7d9676ac7394cd6a"); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, e)
	if d, err = data.Open(e, data.Options{Level: holdfast.Memory}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Tokens().Check(ctx, secrets["writer"]); !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("a revoked token: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// Tokens are taken over once: one that was revoked since does not come back with its old key.
func TestOldTokensOnce(t *testing.T) {
	e := mem.New()
	secrets := fill(t, e)
	for _, want := range []error{nil, holdfast.ErrNotFound} {
		d, err := data.Open(e, data.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Tokens().Revoke(t.Context(), "7d9676ac7394cd6a"); !errors.Is(err, want) {
			t.Errorf("revoked: %v, want %v", err, want)
		}
		if _, err := d.Tokens().Check(t.Context(), secrets["reader"]); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		fill(t, e)
	}
}

// A namespace and its tokens come and go by one commit: if it is refused, there is the one with the others, or nothing.
func TestNamespaceAndTokensAtOnce(t *testing.T) {
	ctx := context.Background()
	e := &refusing{Engine: mem.New()}
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	own := auth.NewNamespaceSecret("shop")
	check := func(want error, secrets ...string) {
		t.Helper()
		_, checked := d.Info(ctx, "shop")
		if want == nil && checked != nil || want != nil && !errors.Is(checked, message.ErrNoNamespace) {
			t.Errorf("the namespace: %v", checked)
		}
		list, err := d.Namespaces(ctx, "", 0)
		if got := len(list) == 2; got != (want == nil) || err != nil {
			t.Errorf("%+v, %v", list, err)
		}
		for _, secret := range secrets {
			if _, err := d.Tokens().Check(ctx, secret); !errors.Is(err, want) {
				t.Errorf("%.20s: %v", secret, err)
			}
		}
	}
	refuse := func(parts ...string) {
		e.refuses = func(b *holdfast.Batch) bool {
			found := touches(b, parts...)
			if len(found) != 0 && len(found) != len(parts) {
				t.Errorf("a batch has %q, and not all of %q", found, parts)
			}
			return len(found) > 0
		}
	}
	for range 2 {
		refuse("m\x00nshop", "namespaces", "ns_shop")
		if _, err := d.Create(ctx, message.NamespaceOptions{ID: "shop"}, own); !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		check(auth.ErrUnknown, own)
		e.refuses = nil
		if _, err := d.Create(ctx, message.NamespaceOptions{ID: "shop", Description: "d"}, own); err != nil {
			t.Fatal(err)
		}
		k, further, err := d.Tokens().Create(ctx, auth.Token{Namespace: "shop", Role: auth.Read})
		if err != nil {
			t.Fatal(err)
		}
		check(nil, own, further)
		refuse("m\x00nshop", "namespaces", "ns_shop", k.ID)
		if _, err := d.Delete(ctx, "shop"); !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		check(nil, own, further)
		e.refuses = nil
		if _, err := d.Delete(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		check(auth.ErrUnknown, own, further)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// What a program makes and deletes in the message store without a server is the server's, or is not, when that opens
// the engine; the tokens of what was deleted open nothing then.
func TestNamespacesOfAStore(t *testing.T) {
	ctx := t.Context()
	e := mem.New()
	alone := func(f func(m *message.Store) error) {
		t.Helper()
		m, err := message.Open(kv.On(e), message.Options{Level: holdfast.Memory})
		if err == nil {
			err = errors.Join(f(m), m.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	served := func(f func(d *data.Data), want ...string) {
		t.Helper()
		d, err := data.Open(e, data.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.Namespaces(ctx, "", 0)
		var got []string
		for _, info := range list {
			got = append(got, info.ID+": "+info.Description)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		f(d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	alone(func(m *message.Store) error {
		_, err := m.Create(ctx, message.NamespaceOptions{ID: "shop", Description: "Orders"})
		return err
	})
	own := auth.NewNamespaceSecret("shop")
	served(func(d *data.Data) {
		if err := d.Tokens().SetOwn(ctx, "shop", own); err != nil {
			t.Fatal(err)
		}
	}, "default: Default namespace", "shop: Orders")
	alone(func(m *message.Store) error {
		_, err := m.Delete(ctx, "shop")
		return err
	})
	served(func(d *data.Data) {
		if _, err := d.Tokens().Check(ctx, own); !errors.Is(err, auth.ErrUnknown) {
			t.Error(err)
		}
	}, "default: Default namespace")
}
