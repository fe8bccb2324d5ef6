package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestImportEventoDB copies an export into a directory, and a server into another and into a server.
func TestImportEventoDB(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	run := func(want int, say string, args ...string) {
		t.Helper()
		status, stdout, stderr := result(t, holdfastCommand(t, append([]string{"import", "eventodb"}, args...)...))
		if status != want || !strings.Contains(stdout+stderr, say) || strings.Contains(stderr, "panic") {
			t.Errorf("%v: status %d, want %d, with %q\n%s%s", args, status, want, say, stdout, stderr)
		}
	}
	text := `{"id":"00000000-0000-4000-8000-000000000001","stream":"a-1","type":"t","pos":3,"gpos":7,"data":{"a":1},` +
		`"meta":null,"time":"2026-01-02T03:04:05Z"}` + "\n"
	try(t, os.WriteFile(path("export"), []byte(text), 0o600))
	other := strings.Replace(text, `{"a":1}`, `{"a":2}`, 1)
	try(t, os.WriteFile(path("other"), []byte(other), 0o600))
	try(t, os.WriteFile(path("broken"), []byte(text+text[:20]), 0o600))

	serve := func() (url, token string) {
		d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
		try(t, err)
		token = auth.NewNamespaceSecret(message.Default)
		try(t, d.Tokens().SetOwn(t.Context(), message.Default, token))
		s, err := server.New(d, server.Options{})
		try(t, err)
		h := httptest.NewServer(s)
		t.Cleanup(func() {
			h.Close()
			try(t, d.Close())
		})
		return h.URL, token
	}
	url, token := serve()
	url2, token2 := serve()
	run(exitOK, "1 imported, 0 were there", path("export"), "--into", url, "--into-token", token)
	run(exitOK, "all 1 messages", path("export"), "--into", path("dir"))
	run(exitOK, "0 imported, 1 were there", path("export"), "--into", path("dir"))
	run(exitOK, "1 imported", url, "--token", token, "--into", "bbolt:"+path("dir2"), "--namespace", "shop")
	run(exitOK, "behind global position 7", url, "--token", token, "--into", "bbolt:"+path("dir2"), "--namespace", "shop")
	run(exitOK, "1 imported", url, "--token", token, "--into", url2, "--into-token", token2)
	run(exitError, "line 1: ", path("other"), "--into", path("dir"))
	run(exitError, "line 2: ", path("broken"), "--into", path("dir3"))
	run(exitError, "no such file", path("none"), "--into", path("dir4"))
	run(exitError, "AUTH_REQUIRED", url, "--into", path("dir4"))
	run(exitError, "--into-token", path("export"), "--into", url, "--namespace", "shop")
	run(exitError, "--into", path("export"))
}
