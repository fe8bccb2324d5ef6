package v1_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
)

func TestNamespaces(t *testing.T) {
	s := start(t, nil, core.Options{})
	made := do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop", Description: "d",
		Metadata: json.RawMessage(`{"a":1}`)})
	if made.ID != "shop" || made.Description != "d" || string(made.Metadata) != `{"a":1}` || made.Created.IsZero() ||
		made.Token == "" {
		t.Errorf("made %+v", made)
	}
	s.refused(api.CodeExists, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop"})
	s.refused(api.CodeBadRequest, "POST", "/v1/namespaces", api.NewNamespace{ID: "a/b"})
	shop := func(path string) string { return "/v1/namespaces/shop" + path }

	own := *s
	own.token = made.Token
	do[api.Written](&own, "POST", shop("/messages"), write("order-1", 3))
	do[api.Appended](&own, "POST", shop("/logs/events/events"), api.Append{Events: []api.NewEvent{{Type: "T"}}})
	do[api.EnqueueResult](&own, "POST", shop("/tasks"), api.Enqueue{Tasks: []api.NewTask{{ID: "a", Kind: "k"}}})
	do[api.Subscription](&own, "PUT", shop(mails), api.Subscription{Category: "order"})
	do[api.Deliveries](&own, "POST", shop(mails+"/claim"), api.ClaimMessages{WaitMS: 60_000})
	reader := do[api.Token](&own, "POST", "/v1/tokens", api.NewToken{Namespace: "shop", Role: "read"})
	if got := do[api.Namespace](&own, "GET", shop(""), nil); got.Messages != 3 || got.Streams != 1 || got.Last != 3 ||
		got.Token != "" {
		t.Errorf("%+v", got)
	}
	// Nothing of it is in the other namespace, and its tokens do not open that.
	if got := do[api.Messages](s, "GET", in("/messages"), nil); len(got.Messages) != 0 {
		t.Errorf("%+v", got)
	}
	s.refused(api.CodeNotFound, "GET", in("/tasks/a"), nil)
	s.refused(api.CodeNotFound, "GET", in("/logs/events"), nil)
	s.refused(api.CodeNotFound, "GET", in(mails), nil)
	for _, path := range []string{in("/messages"), "/v1/namespaces", "/v1/tokens", "/v1/tokens?namespace=default",
		"/v1/server"} {
		own.refused(api.CodeForbidden, "GET", path, nil)
	}
	own.refused(api.CodeForbidden, "DELETE", shop(""), nil)
	own.refused(api.CodeForbidden, "POST", "/v1/tokens", api.NewToken{Namespace: "*", Role: "read"})

	var ids []string
	for _, n := range do[[]api.Namespace](s, "GET", "/v1/namespaces", nil) {
		ids = append(ids, n.ID)
	}
	if !slices.Equal(ids, []string{"default", "shop"}) {
		t.Errorf("%v", ids)
	}
	if list := do[[]api.Namespace](s, "GET", "/v1/namespaces?after=default&limit=1", nil); len(list) != 1 ||
		list[0].ID != "shop" {
		t.Errorf("%+v", list)
	}

	follower := s.follow(shop("/messages/follow?from=-1"), "")
	if got := do[api.Removed](s, "DELETE", shop(""), nil); got.Removed != 3 {
		t.Errorf("%+v", got)
	}
	var p api.Problem
	if e := follower.want("problem"); json.Unmarshal([]byte(e.data), &p) != nil || p.Code != api.CodeNoNamespace {
		t.Errorf("%+v", e)
	}
	s.refused(api.CodeNoNamespace, "DELETE", shop(""), nil)
	s.refused(api.CodeNoNamespace, "GET", shop("/messages"), nil)
	s.refused(api.CodeBadRequest, "DELETE", "/v1/namespaces/default", nil)
	// One that is made again has nothing of the old one, and another token.
	do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "shop"})
	own.refused(api.CodeUnauthorized, "GET", shop("/messages"), nil)
	own.token = reader.Secret
	own.refused(api.CodeUnauthorized, "GET", shop("/messages"), nil)
	s.refused(api.CodeNotFound, "GET", shop("/tasks/a"), nil)
	s.refused(api.CodeNotFound, "GET", shop("/logs/events"), nil)
	s.refused(api.CodeNotFound, "POST", shop(mails+"/claim"), api.ClaimMessages{})
	if list := do[[]api.Token](s, "GET", "/v1/tokens?namespace=shop", nil); list == nil || len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestTokens(t *testing.T) {
	s := start(t, nil, core.Options{})
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	made := do[api.Token](s, "POST", "/v1/tokens", api.NewToken{Namespace: "default", Role: "write", Description: "d",
		Expires: &expires})
	if made.ID == "" || made.Secret == "" || made.Role != "write" || !made.Expires.Equal(expires) {
		t.Errorf("%+v", made)
	}
	worker := *s
	worker.token = made.Secret
	if got := do[api.Token](&worker, "GET", "/v1/token", nil); got.ID != made.ID || got.Namespace != "default" ||
		got.Secret != "" {
		t.Errorf("%+v", got)
	}
	do[api.Written](&worker, "POST", in("/messages"), write("a-1", 1))
	worker.refused(api.CodeForbidden, "DELETE", in("/logs/a"), nil)
	worker.refused(api.CodeForbidden, "GET", "/v1/tokens?namespace=default", nil)
	worker.refused(api.CodeForbidden, "DELETE", "/v1/tokens/"+made.ID, nil)
	list := do[[]api.Token](s, "GET", "/v1/tokens?namespace=default", nil)
	if len(list) != 1 || list[0].ID != made.ID || list[0].Secret != "" {
		t.Errorf("%+v", list)
	}
	do[any](s, "DELETE", "/v1/tokens/"+made.ID, nil)
	s.refused(api.CodeNotFound, "DELETE", "/v1/tokens/"+made.ID, nil)
	worker.refused(api.CodeUnauthorized, "GET", in("/messages"), nil)
	root := s.refused(api.CodeBadRequest, "POST", "/v1/tokens", api.NewToken{Namespace: "default", Role: "root"})
	if !strings.Contains(root.Detail, `"root"`) {
		t.Errorf("it does not name what was refused: %q", root.Detail)
	}
	s.refused(api.CodeNoNamespace, "POST", "/v1/tokens", api.NewToken{Namespace: "none", Role: "read"})
}

// Every route refuses those who have no token, and those whose role or namespace is not enough.
func TestRoles(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Namespace](s, "POST", "/v1/namespaces", api.NewNamespace{ID: "other"})
	reader, other := *s, *s
	reader.token, other.token = s.newToken("default", auth.Read), s.newToken("other", auth.Admin)
	nobody := *s
	nobody.token = ""
	for _, r := range s.server.Routes() {
		if !strings.HasPrefix(r.Pattern, "/v1/") || r.Method == "" {
			continue
		}
		path := strings.NewReplacer("{ns}", "default", "{", "", "}", "").Replace(r.Pattern)
		nobody.refused(api.CodeUnauthorized, r.Method, path, nil)
		if r.Role > auth.Read {
			reader.refused(api.CodeForbidden, r.Method, path, nil)
		}
		if strings.Contains(r.Pattern, "{ns}") {
			other.refused(api.CodeForbidden, r.Method, path, nil)
		}
	}
}

func TestServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	engine, err := all.Open("logtree", dir, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	scratch := t.TempDir()
	s := start(t, engine, core.Options{Version: "v9", Backup: all.Backup, BackupDir: scratch})
	got := do[api.Server](s, "GET", "/v1/server", nil)
	if got.Version != "v9" || got.Engine != "logtree" || got.Level != "power" || !got.Ready || got.Unsynced ||
		got.Namespaces != 1 || got.Trouble != "" || len(got.Settings) == 0 || got.Counters.Commits == 0 {
		t.Errorf("%+v", got)
	}
	do[api.Written](s, "POST", in("/messages"), write("order-1", 20))
	do[api.EnqueueResult](s, "POST", in("/tasks"), api.Enqueue{Tasks: []api.NewTask{{ID: "a", Kind: "k"}}})
	v := do[api.Verified](s, "POST", "/v1/server/verify", nil)
	if v.Problems == nil || len(v.Problems) != 0 || v.Keys < 10 || v.Bytes < 100 {
		t.Errorf("%+v", v)
	}
	for _, query := range []string{"", "?link=true"} {
		backedUp(t, s, scratch, query)
	}
	s.refused(api.CodeBadRequest, "GET", "/v1/server/backup?link=perhaps", nil)

	// Where no copy can be made, the answer says so, and where that was.
	s = start(t, nil, core.Options{Backup: all.Backup, BackupDir: filepath.Join(t.TempDir(), "missing", "tmp")})
	if p := s.refused(api.CodeNotImplemented, "GET", "/v1/server/backup", nil); !strings.Contains(p.Detail, "missing") {
		t.Errorf("%+v", p)
	}

	s = start(t, nil, core.Options{Backup: all.Backup}) // of an engine in memory
	s.refused(api.CodeNotImplemented, "GET", "/v1/server/backup", nil)
	s.refused(api.CodeNotImplemented, "POST", "/v1/server/compact", nil)
	if got := do[api.Server](s, "GET", "/v1/server", nil); !got.Unsynced || got.Level != "memory" {
		t.Errorf("%+v", got)
	}
}

// compactor is an engine that compacts when asked to.
type compactor struct {
	holdfast.Engine
	began chan struct{}
	end   chan error
}

var _ holdfast.Compactor = (*compactor)(nil)

func (c *compactor) Compact(context.Context, holdfast.Range) error {
	c.began <- struct{}{}
	return <-c.end
}

func TestCompact(t *testing.T) {
	engine := &compactor{mem.New(), make(chan struct{}), make(chan error)}
	s := start(t, engine, core.Options{})
	for _, result := range []error{nil, holdfast.ErrFull} {
		answered := make(chan *http.Response)
		go func() {
			resp, _ := s.send("POST", "/v1/server/compact", nil)
			answered <- resp
		}()
		<-engine.began
		s.refused(api.CodeLocked, "POST", "/v1/server/compact", nil)
		engine.end <- result
		want := http.StatusNoContent
		if result != nil {
			want = http.StatusInsufficientStorage
		}
		if resp := <-answered; resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
}

// What is damaged or lost is found.
func TestVerifyFindsDamage(t *testing.T) {
	s := start(t, nil, core.Options{})
	do[api.Appended](s, "POST", in("/logs/x/events"), api.Append{Events: []api.NewEvent{{Type: "T"}}})
	do[api.Appended](s, "POST", in("/logs/x/events"), api.Append{Events: []api.NewEvent{{Type: "T"}}})
	do[api.EnqueueResult](s, "POST", in("/tasks"), api.Enqueue{Tasks: []api.NewTask{{ID: "a", Kind: "k"}}})
	var b holdfast.Batch
	b.DeleteRange([]byte("e\x01xe"), []byte("e\x01xe\x00\x00\x00\x00\x00\x00\x00\x02"))
	b.DeleteRange([]byte("t\x00t"), []byte("t\x00u"))
	if err := holdfast.Commit(s.engine, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	v := do[api.Verified](s, "POST", "/v1/server/verify", nil)
	if !slices.ContainsFunc(v.Problems, func(p string) bool { return strings.HasPrefix(p, `log "x"`) }) ||
		!slices.ContainsFunc(v.Problems, func(p string) bool { return strings.HasPrefix(p, `tasks ""`) }) {
		t.Errorf("%q", v.Problems)
	}
}

// backedUp takes a backup of a server with 20 messages and a task, and looks at what is in it.
func backedUp(t *testing.T, s *server, scratch, query string) {
	t.Helper()
	resp, text := s.send("GET", "/v1/server/backup"+query, nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Content-Disposition"), ".tar") {
		t.Fatalf("%s: %v", resp.Status, resp.Header)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 0 {
		t.Errorf("the backup left %v, %v", left, err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(copied, h.Name)
		if h.FileInfo().IsDir() {
			continue
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, content, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other, err := all.OpenDir("", copied, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	s = start(t, other, core.Options{})
	if m := do[api.Messages](s, "GET", in("/messages"), nil); len(m.Messages) != 20 {
		t.Errorf("in the copy there are %d messages", len(m.Messages))
	}
	do[api.Task](s, "GET", in("/tasks/a"), nil)
	s.refused(api.CodeNotImplemented, "GET", "/v1/server/backup", nil)
}
