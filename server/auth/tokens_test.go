package auth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

var ctx = context.Background()

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens the data in an engine, and closes it with the test.
func open(t testing.TB, e holdfast.Engine) (*auth.Tokens, *data.Data) {
	t.Helper()
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	try(t, err)
	t.Cleanup(func() { _ = d.Close() }) // or the test has closed it
	return d.Tokens(), d
}

func wantErr(t *testing.T, tokens *auth.Tokens, secret string, want error) {
	t.Helper()
	p, err := tokens.Check(ctx, secret)
	if !errors.Is(err, want) || p != (auth.Principal{}) && want != auth.ErrExpired {
		t.Fatalf("%.20s: %+v, %v; want %v", secret, p, err, want)
	}
	if err != nil && len(secret) > 20 && strings.Contains(err.Error(), secret[len(secret)-20:]) {
		t.Fatalf("the error tells the secret: %v", err)
	}
}

func want(t *testing.T, tokens *auth.Tokens, secret string, want auth.Principal) {
	t.Helper()
	for range 2 { // once read, once remembered
		if p, err := tokens.Check(ctx, secret); err != nil || p != want {
			t.Fatalf("%.20s: %+v, %v; want %+v", secret, p, err, want)
		}
	}
}

func TestNamespaceTokens(t *testing.T) {
	tokens, d := open(t, mem.New())
	all, one := auth.NewNamespaceSecret(message.Default), auth.NewNamespaceSecret("one")
	wantErr(t, tokens, all, auth.ErrUnknown) // the default namespace has none yet
	try(t, tokens.SetOwn(ctx, message.Default, all))
	wantErr(t, tokens, one, auth.ErrUnknown)
	_, err := d.Create(ctx, message.NamespaceOptions{ID: "one"}, one)
	try(t, err)

	want(t, tokens, all, auth.Principal{TokenID: "ns_default", Namespace: auth.Everywhere, Role: auth.Admin})
	want(t, tokens, one, auth.Principal{TokenID: "ns_one", Namespace: "one", Role: auth.Admin})
	wantErr(t, tokens, auth.NewNamespaceSecret("one"), auth.ErrUnknown)
	wantErr(t, tokens, auth.NewNamespaceSecret("two"), auth.ErrUnknown)
	wantErr(t, tokens, auth.NewNamespaceSecret("no name!"), auth.ErrUnknown)
	wantErr(t, tokens, "", auth.ErrNoToken)

	other := auth.NewNamespaceSecret("one")
	try(t, tokens.SetOwn(ctx, "one", other))
	wantErr(t, tokens, one, auth.ErrUnknown)
	want(t, tokens, other, auth.Principal{TokenID: "ns_one", Namespace: "one", Role: auth.Admin})

	_, err = d.Delete(ctx, "one")
	try(t, err)
	wantErr(t, tokens, other, auth.ErrUnknown)
	if err := tokens.SetOwn(ctx, "one", other); !errors.Is(err, message.ErrNoNamespace) {
		t.Fatal(err)
	}
}

// Tokens are there again after the engine was closed, and revoked ones are not.
func TestTokensLast(t *testing.T) {
	dir := t.TempDir()
	e, err := logtree.Open(dir, holdfast.Options{})
	try(t, err)
	tokens, d := open(t, e)
	_, err = d.Create(ctx, message.NamespaceOptions{ID: "one"}, "")
	try(t, err)
	expires := time.Now().Add(time.Hour)
	kept, secret, err := tokens.Create(
		ctx,
		auth.Token{Namespace: "one", Role: auth.Write, Description: "d", Expires: expires},
	)
	try(t, err)
	every, everySecret, err := tokens.Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read})
	try(t, err)
	gone, goneSecret, err := tokens.Create(ctx, auth.Token{Namespace: "one", Role: auth.Read})
	try(t, err)
	want(t, tokens, goneSecret, auth.Principal{TokenID: gone.ID, Namespace: "one", Role: auth.Read})
	try(t, tokens.Revoke(ctx, gone.ID))
	check := func() {
		t.Helper()
		want(t, tokens, secret, auth.Principal{TokenID: kept.ID, Namespace: "one", Role: auth.Write})
		want(t, tokens, everySecret, auth.Principal{TokenID: every.ID, Namespace: auth.Everywhere, Role: auth.Read})
		wantErr(t, tokens, goneSecret, auth.ErrUnknown)
		wantErr(t, tokens, secret[:len(secret)-64]+everySecret[len(everySecret)-64:], auth.ErrUnknown)
		if err := tokens.Revoke(ctx, gone.ID); !errors.Is(err, holdfast.ErrNotFound) {
			t.Fatal(err)
		}
		for namespace, ids := range map[string][]string{
			"": {kept.ID, every.ID}, "one": {kept.ID}, auth.Everywhere: {every.ID}, "two": nil,
		} {
			list, err := tokens.List(ctx, namespace)
			try(t, err)
			if len(list) != len(ids) {
				t.Fatalf("%q has %+v", namespace, list)
			}
			for i, k := range list {
				if got, err := tokens.Get(ctx, k.ID); k.ID != ids[i] || err != nil || got != k {
					t.Fatalf("%+v; %+v, %v", k, got, err)
				}
			}
		}
		if k, err := tokens.Get(ctx, kept.ID); err != nil || k.Description != "d" || !k.Expires.Equal(expires) {
			t.Fatal(k, err)
		}
	}
	check()
	try(t, d.Close())
	try(t, e.Close())
	e, err = logtree.Open(dir, holdfast.Options{})
	try(t, err)
	defer e.Close()
	tokens, d = open(t, e)
	defer d.Close()
	check()
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		for _, s := range []string{secret, everySecret} {
			if key := s[len(s)-64:]; strings.Contains(string(it.Value()), key) {
				t.Fatalf("%q has a secret", it.Key())
			}
		}
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, d := open(t, mem.New())
		k, secret, err := tokens.Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Write,
			Expires: time.Now().Add(time.Hour)})
		try(t, err)
		p := auth.Principal{TokenID: k.ID, Namespace: message.Default, Role: auth.Write}
		time.Sleep(time.Hour - 1)
		want(t, tokens, secret, p)
		time.Sleep(time.Nanosecond)
		wantErr(t, tokens, secret, auth.ErrExpired)
		_, _, err = tokens.Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Write, Expires: time.Now()})
		if !errors.Is(err, holdfast.ErrBadOption) {
			t.Fatal(err)
		}
		try(t, d.Close())
	})
}

// The tokens of a namespace that was deleted are refused and removed, also if one of the same id is made.
func TestDeletedNamespace(t *testing.T) {
	e := mem.New()
	tokens, d := open(t, e)
	var secrets []string
	for range 2 {
		_, err := d.Create(ctx, message.NamespaceOptions{ID: "one"}, "")
		try(t, err)
		k, secret, err := tokens.Create(ctx, auth.Token{Namespace: "one", Role: auth.Admin})
		try(t, err)
		want(t, tokens, secret, auth.Principal{TokenID: k.ID, Namespace: "one", Role: auth.Admin})
		for _, old := range secrets {
			wantErr(t, tokens, old, auth.ErrUnknown)
		}
		list, err := tokens.List(ctx, "")
		if err != nil || len(list) != 1 || list[0].ID != k.ID {
			t.Fatal(list, err)
		}
		secrets = append(secrets, secret)
		_, err = d.Delete(ctx, "one")
		try(t, err)
		wantErr(t, tokens, secret, auth.ErrUnknown)
		if _, err := tokens.Get(ctx, k.ID); !errors.Is(err, holdfast.ErrNotFound) {
			t.Fatal(err)
		}
	}
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		if bytes.Contains(it.Value(), []byte("sha256")) || bytes.Contains(it.Key(), []byte("one")) {
			t.Fatalf("%q is left", it.Key())
		}
	}
}

// To delete a namespace, the tokens of others are passed over without being read: other transactions wait meanwhile.
func TestDeletingPassesOthers(t *testing.T) {
	const n = 2000
	_, d := open(t, mem.New())
	_, err := d.Create(ctx, message.NamespaceOptions{ID: "shop"}, auth.NewNamespaceSecret("shop"))
	try(t, err)
	for i := range n {
		namespace := auth.Everywhere
		if i < 3 {
			namespace = "shop"
		}
		_, _, err := d.Tokens().Create(ctx, auth.Token{Namespace: namespace, Role: auth.Read, Description: "of a shop"})
		try(t, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = d.Delete(ctx, "shop")
	runtime.ReadMemStats(&after)
	try(t, err)
	if made := after.Mallocs - before.Mallocs; made > 3*n {
		t.Errorf("%d allocations beside %d tokens of others", made, n)
	}
	list, err := d.Tokens().List(ctx, "")
	try(t, err)
	if len(list) != n-3 {
		t.Errorf("%d tokens are left", len(list))
	}
}

func TestCreateRefuses(t *testing.T) {
	tokens, _ := open(t, mem.New())
	for _, c := range []struct {
		k    auth.Token
		want error
	}{
		{auth.Token{Namespace: "none", Role: auth.Read}, message.ErrNoNamespace},
		{auth.Token{Namespace: "", Role: auth.Read}, message.ErrBadName},
		{auth.Token{Namespace: auth.Everywhere}, holdfast.ErrBadOption},
		{auth.Token{Namespace: auth.Everywhere, Role: 9}, holdfast.ErrBadOption},
		{auth.Token{Namespace: auth.Everywhere, Role: auth.Read, Description: strings.Repeat("x", 1025)},
			holdfast.ErrBadOption},
		{auth.Token{Namespace: auth.Everywhere, Role: auth.Read, Description: "\xff"}, holdfast.ErrBadOption},
	} {
		if _, _, err := tokens.Create(ctx, c.k); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.k, err)
		}
	}
	for _, id := range []string{"", "none", strings.Repeat("x", 20_000)} {
		if _, err := tokens.Get(ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%.10q: %v", id, err)
		}
		if err := tokens.Revoke(ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%.10q: %v", id, err)
		}
	}
}

// What cannot be read is reported, does not open anything, hides no other token, and can be revoked.
func TestDamagedToken(t *testing.T) {
	e := mem.New()
	tokens, d := open(t, e)
	ok, _, err := tokens.Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read})
	try(t, err)
	for value, class := range map[string]error{
		"": holdfast.ErrCorrupt, "\x00{}": holdfast.ErrCorrupt, "\x01{": holdfast.ErrCorrupt, "\x02{}": holdfast.ErrVersion,
	} {
		const id = "0123456789abcdef"
		try(t, d.DB().Update(ctx, func(tx *kv.Tx) error {
			return tx.Bucket("holdfast", "tokens").Put([]byte(id), []byte(value))
		}))
		wantErr(t, tokens, "hf_"+id+"_"+strings.Repeat("0", 64), class)
		list, err := tokens.List(ctx, "")
		if class == holdfast.ErrCorrupt && (!errors.Is(err, class) || len(list) != 1 || list[0].ID != ok.ID) {
			t.Fatalf("%q: %v, %v", value, list, err)
		}
		if _, err := auth.Open(d.DB(), nil); class == holdfast.ErrVersion && !errors.Is(err, class) ||
			class == holdfast.ErrCorrupt && err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		if class == holdfast.ErrCorrupt {
			try(t, tokens.Revoke(ctx, id))
		}
	}
}

// A token is good until Revoke returns, and never afterwards, whoever checks it at the same time.
func TestRevokeWhileChecked(t *testing.T) {
	tokens, d := open(t, mem.New())
	for round := range 20 {
		id := fmt.Sprint("n", round)
		_, err := d.Create(ctx, message.NamespaceOptions{ID: id}, "")
		try(t, err)
		k, secret, err := tokens.Create(ctx, auth.Token{Namespace: id, Role: auth.Read})
		try(t, err)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = tokens.Check(ctx, secret)
					}
				}
			})
		}
		if round%2 == 0 {
			err = tokens.Revoke(ctx, k.ID)
		} else {
			_, err = d.Delete(ctx, id)
		}
		_, checked := tokens.Check(ctx, secret)
		close(stop)
		wg.Wait()
		try(t, err)
		if !errors.Is(checked, auth.ErrUnknown) {
			t.Fatal("revoked, and", checked)
		}
	}
}

func FuzzParse(f *testing.F) {
	key := strings.Repeat("0a", 32)
	for _, s := range []string{"", "ns_", "hf_", "ns_ZGVmYXVsdA_" + key, "ns_ZGVmYXVsdA_" + key[1:], "ns__" + key,
		"ns_ZGVmYXVsdA==_" + key,
		"ns_\r000_" + key, "hf_0123456789abcdef_" + key, "hf_0123456789abcdeg_" + key, "hf__" + key, "ns_a_b_" + key,
		"ns_ZGVmYXVsdA_" + key + "\n",
		"ns_ZGVmYXVsdA_" + strings.ToUpper(key), "Bearer ns_ZGVmYXVsdA_" + key} {
		f.Add(s)
	}
	tokens, _ := open(f, mem.New())
	f.Fuzz(func(t *testing.T, secret string) {
		s, err := auth.Parse(secret)
		if err != nil {
			if !errors.Is(err, auth.ErrMalformed) || s != (auth.Secret{}) {
				t.Fatal(s, err)
			}
		} else {
			// What can be parsed is made of its parts in one way only.
			key := secret[len(secret)-64:]
			again := "hf_" + s.ID + "_" + key
			if s.Namespace != "" {
				again = "ns_" + base64.RawURLEncoding.EncodeToString([]byte(s.Namespace)) + "_" + key
			}
			if again != secret || (s.ID == "") == (s.Namespace == "") {
				t.Fatalf("%q is %+v", secret, s)
			}
		}
		_, err = tokens.Check(ctx, secret)
		if !errors.Is(err, auth.ErrNoToken) && !errors.Is(err, auth.ErrMalformed) && !errors.Is(err, auth.ErrUnknown) {
			t.Fatal(err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	tokens, _ := open(b, mem.New())
	own := auth.NewNamespaceSecret(message.Default)
	try(b, tokens.SetOwn(ctx, message.Default, own))
	_, further, err := tokens.Create(ctx, auth.Token{Namespace: message.Default, Role: auth.Read})
	try(b, err)
	for name, secret := range map[string]string{"own": own, "further": further,
		"unknown": auth.NewNamespaceSecret("none")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tokens.Check(ctx, secret); (err == nil) == (name == "unknown") {
					b.Fatal(err)
				}
			}
		})
	}
}
