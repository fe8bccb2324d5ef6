package load

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/child"
)

// NullArgument is the hidden command that serves as null.
const NullArgument = "load-null"

// nullServer answers constants, whatever it is asked. It reads requests whole, and does no more with them, but that a
// follower is sent the body of each POST: what is left is what HTTP costs in net/http, and the generator.
type nullServer struct {
	answers map[string]string // by method and path

	mu    sync.Mutex
	sent  [][]byte
	more  chan struct{} // closed with the next one
	level string
}

func newNullServer() *nullServer {
	s := &nullServer{answers: map[string]string{}, more: make(chan struct{}), level: holdfast.Memory.String()}
	for _, shape := range Shapes() {
		for request, text := range shape.null {
			s.answers[request] = text
		}
	}

	return s
}

// ServeHTTP implements [http.Handler].
func (s *nullServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Accept") == "text/event-stream" {
		s.follow(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == followWrite {
		s.send(body)
	}
	text, ok := s.answers[r.Method+" "+r.URL.Path]
	if !ok {
		text = "{}"
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	if r.Method == http.MethodPost {
		h[api.HeaderLevel] = []string{s.level}
	}
	_, _ = io.WriteString(w, text)
}

// send hands a body to the followers.
func (s *nullServer) send(body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, fmt.Appendf(nil, "event: message\ndata: %s\n\n", body))
	close(s.more)
	s.more = make(chan struct{})
}

// follow sends what comes from now on.
func (s *nullServer) follow(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	at := len(s.sent)
	s.mu.Unlock()
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Transfer-Encoding", "identity") // one write for all that has come, as the server does it
	w.WriteHeader(http.StatusOK)

	for {
		if control.Flush() != nil {
			return
		}
		s.mu.Lock()
		list, more := s.sent[at:], s.more
		s.mu.Unlock()
		if len(list) == 0 {
			select {
			case <-more:
				continue
			case <-r.Context().Done():
				return
			}
		}

		if _, err := w.Write(bytes.Join(list, nil)); err != nil {
			return
		}
		at += len(list)
	}
}

// ServeNull is what the process of the null server runs: it listens on the loopback, tells its address on stdout as
// holdfast serve does, and ends with its parent. It returns the exit status.
func ServeNull(stdin io.Reader, stdout io.Writer) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Fprintf(stdout, "%s http://%s\n", telling, l.Addr())
	server := &http.Server{Handler: newNullServer()}
	var none struct{}
	if err := child.Serve("load", stdin, &none); err != nil {
		return 1
	}
	if err := server.Serve(l); err != nil {
		return 1
	}

	return 0
}
