package ebuse

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// compressed lets a handler answer in gzip, its errors too, if the client accepts that.
func compressed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !acceptsGzip(r.Header.Values("Accept-Encoding")) {
			h(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		// After a panic, which cuts the connection, the end of the gzip stream must not be written.
		h(z, r)
		z.close()
	}
}

// acceptsGzip reports whether the values of Accept-Encoding name gzip, or anything, and not with q=0.
func acceptsGzip(values []string) bool {
	accepted := false
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, parameter, _ := strings.Cut(item, ";")
		q, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		if !ok || err != nil {
			weight = 1
		}

		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, "gzip"):
			return weight > 0
		case name == "*":
			accepted = weight > 0
		}
	}

	return accepted
}

// pool has writers that are not in use: each takes most of a megabyte.
var pool = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is one
	return z
}}

// gzipWriter compresses what is written to it, from the first byte on.
type gzipWriter struct {
	http.ResponseWriter
	z      *gzip.Writer // nil before the first byte
	header bool         // it is written
}

func (g *gzipWriter) WriteHeader(status int) {
	if !g.header && status >= 200 {
		g.header = true
		if status != http.StatusNoContent && status != http.StatusNotModified {
			g.Header().Set("Content-Encoding", "gzip")
			g.Header().Del("Content-Length")
		}
	}
	g.ResponseWriter.WriteHeader(status)
}

func (g *gzipWriter) Write(b []byte) (int, error) {
	if !g.header {
		g.WriteHeader(http.StatusOK)
	}
	if g.z == nil {
		g.z = pool.Get().(*gzip.Writer)
		g.z.Reset(g.ResponseWriter)
	}

	return g.z.Write(b)
}

// FlushError sends what has been written, as http.ResponseController has it.
func (g *gzipWriter) FlushError() error {
	if g.z != nil {
		if err := g.z.Flush(); err != nil {
			return err
		}
	}

	return http.NewResponseController(g.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (g *gzipWriter) Unwrap() http.ResponseWriter { return g.ResponseWriter }

func (g *gzipWriter) close() {
	if g.z == nil {
		return
	}
	_ = g.z.Close() // the client may have disconnected
	g.z.Reset(io.Discard)
	pool.Put(g.z)
	g.z = nil
}
