package inprocess

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Wire is a transport with faults.
type Wire struct {
	http.RoundTripper

	mu    sync.Mutex
	Tries []string          // method and path of each
	Fault func(n int) Fault // of the try with that number, from 0; nil for none
}

// Fault is what goes wrong with a try.
type Fault int

// The faults.
const (
	None     Fault = iota
	Refused        // there is no connection
	Unsent         // the connection breaks; the server has done nothing
	Unheard        // the connection breaks; the server has done it
	HalfSent       // the answer breaks off after its first byte
)

// ErrBroken is what a try fails with.
var ErrBroken = errors.New("connection reset")

// RoundTrip implements [http.RoundTripper].
func (w *Wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	n := len(w.Tries)
	w.Tries = append(w.Tries, req.Method+" "+req.URL.Path)
	f := None
	if w.Fault != nil {
		f = w.Fault(n)
	}
	w.mu.Unlock()

	switch f {
	case Refused:
		return nil, &net.OpError{Op: "dial", Err: ErrBroken}
	case Unsent:
		return nil, ErrBroken
	}
	resp, err := w.RoundTripper.RoundTrip(req)
	if err != nil || f == None {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if f == Unheard || err != nil {
		return nil, ErrBroken
	}
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(string(body[:min(len(body), 1)])), failing{}))

	return resp, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, ErrBroken }

// First is the fault of the first n tries.
func First(n int, f Fault) func(int) Fault {
	return func(i int) Fault {
		if i < n {
			return f
		}

		return None
	}
}
