// Package page is the server's page: what an operator looks at in a browser. It is HTML, CSS and JavaScript as
// written, embedded in the program: nothing is built, and nothing is fetched from elsewhere. All that it shows comes
// through /v1, with a token that the user types in; the files themselves hold no secrets and need none.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/holdfastdb/holdfast/server/route"
)

//go:embed assets
var files embed.FS

// policy lets the page run its own scripts and talk to its own server, and nothing else: no inline code, no frames, no
// HTML made of text (trusted types), so that a message cannot become part of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// types are those of the files, by extension: the tables of operating systems are not asked.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Style is the style sheet, for other pages that are to look like this one.
func Style() string {
	css, err := files.ReadFile("assets/style.css")
	if err != nil {
		panic(err) // it is embedded
	}

	return string(css)
}

// file is one file of the page.
type file struct {
	name, kind, etag string
	data             []byte
}

// Routes returns the routes of the page: / redirects to /page/, below which the files are. They need no token.
func Routes() []route.Route {
	loaded := load()

	return []route.Route{
		{Method: http.MethodGet, Pattern: "/{$}", Handler: func(w http.ResponseWriter, _ *http.Request) {
			headers(w)
			w.Header().Set("Location", "page/") // relative: a proxy may have put a path before it
			w.WriteHeader(http.StatusFound)
		}},
		{Method: http.MethodGet, Pattern: "/page", Handler: func(w http.ResponseWriter, _ *http.Request) {
			headers(w)
			w.Header().Set("Location", "page/")
			w.WriteHeader(http.StatusFound)
		}},
		{Method: http.MethodGet, Pattern: "/page/{file...}", Handler: func(w http.ResponseWriter, r *http.Request) {
			headers(w)
			name := r.PathValue("file")
			if name == "" {
				name = "index.html"
			}
			f, ok := loaded[name]
			if !ok {
				http.Error(w, "page: there is no file "+name, http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("ETag", f.etag)
			w.Header().Set("Cache-Control", "no-cache") // may be kept, and is asked for again by its ETag
			http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(f.data))
		}},
	}
}

// headers sets what every answer has.
func headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// load reads the embedded files. It panics on one that has no type, which is a mistake in the program.
func load() map[string]file {
	loaded := map[string]file{}
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err)
	}
	err = fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(assets, name)
		if err != nil {
			return err
		}
		kind, ok := types[path.Ext(name)]
		if !ok {
			panic("page: no type for " + name)
		}
		sum := sha256.Sum256(data)
		loaded[name] = file{name: name, kind: kind, etag: `"` + hex.EncodeToString(sum[:12]) + `"`, data: data}

		return nil
	})
	if err != nil {
		panic(err)
	}

	return loaded
}
