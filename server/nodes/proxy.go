package nodes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
)

// The headers that processes send each other.
const (
	headerPeer    = "Holdfast-Peer"    // the peer token: this is no client's request
	headerSpace   = "Holdfast-Space"   // the space that the request is for
	headerFrom    = "Holdfast-From"    // the client's address
	headerRefused = "Holdfast-Refused" // in an answer with status 421: nothing was done, and why

	headerNamespace = "Holdfast-Namespace" // the namespace that the request is about, if it is one that lies in the space
	headerSure      = "Holdfast-Sure"      // it was asked for just now: say so if the namespace is not there
	headerLies      = "Holdfast-Lies"      // in an answer with status 421: the space in which the namespace lies
	headerAsk       = "Holdfast-Ask"       // what a process wants to know itself
)

// pathLook is where processes tell each other that spaces have changed owners.
const pathLook = "/v1/nodes/look"

// small is up to which size a body is kept, so that it can be sent to another owner if the first one refuses it.
const small = 64 << 10

// transport is how requests are made to others. Connections that nobody uses are closed before the other side does so.
func transport(c *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: c, MaxIdleConnsPerHost: 256, IdleConnTimeout: 20 * time.Second,
		TLSHandshakeTimeout: 3 * time.Second, ForceAttemptHTTP2: false, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: time.Second, KeepAlive: 3 * time.Second}).DialContext}
}

// Transport is how requests are made to others whose certificates are checked as c says.
func Transport(c *tls.Config) http.RoundTripper { return transport(c) }

// ServeHTTP answers any request.
func (n *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header[headerPeer] != nil {
		n.servePeer(w, r)
		return
	}
	if own(r) {
		n.front.ServeHTTP(w, r)
		return
	}
	at, ok := where{}, !n.several()
	if !ok {
		at, ok = n.quick(r)
	}
	if ok && at.namespace == "" || ok && n.remembered(at.namespace) {
		number, _ := n.lies(r.Context(), at.namespace)
		if o := n.enter(number); o != nil { // nothing stands between a client and an owner
			defer n.exit(o)
			if n.local(w, r, o, at.namespace, false) == nil {
				return
			}
		}
	}
	n.front.Pass(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ok {
			var err error
			if at, err = n.route(r); err != nil {
				problem.Write(w, r, err)
				return
			}
		}
		if joined := joins[r.URL.Path]; joined != nil && at == (where{}) && n.several() {
			joined(n, w, r)
			return
		}
		n.find(w, r, at)
	}))
}

// own reports whether a request is about the process itself.
func own(r *http.Request) bool {
	switch r.URL.Path {
	case "/health", "/version", "/ready", "/v1/nodes", "/v1/nodes/move":
		return true
	}

	return server.Scrapes(r)
}

// isPeer reports whether a request comes from another process.
func (n *Node) isPeer(r *http.Request) bool {
	got, want := sha256.Sum256([]byte(r.Header.Get(headerPeer))), sha256.Sum256([]byte(n.o.PeerToken))

	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// servePeer answers a request that another process has passed on. It is not passed on again.
func (n *Node) servePeer(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) {
		w.Header().Set(headerRefused, why)
		http.Error(w, why, http.StatusMisdirectedRequest)
	}
	number, err := strconv.Atoi(r.Header.Get(headerSpace))
	switch {
	case !n.isPeer(r):
		n.o.Logger.Warn("a request with another peer token was refused", "from", r.RemoteAddr)
		refuse("the peer token is another one here")
		return
	case r.URL.Path == pathLook:
		n.hasten()
		w.WriteHeader(http.StatusNoContent)
		return
	case err != nil:
		refuse("it names no space")
		return
	}
	if from := r.Header.Get(headerFrom); from != "" {
		r.RemoteAddr = from
	}
	namespace, sure, ask := r.Header.Get(headerNamespace), r.Header.Get(headerSure) != "", r.Header.Get(headerAsk)
	for _, name := range []string{headerPeer, headerSpace, headerFrom, headerNamespace, headerSure, headerAsk} {
		r.Header.Del(name)
	}
	o := n.enter(number)
	if o == nil {
		refuse("it does not own the space")
		return
	}
	defer n.exit(o)
	if ask != "" {
		n.answerPeer(w, r, o, ask)
		return
	}
	if number > 0 && namespace == "" && !strings.HasPrefix(r.URL.Path, "/v1/server") {
		refuse("it names no namespace")
		return
	}
	if err := n.local(w, r, o, namespace, sure); err != nil {
		if other := (*elsewhere)(nil); errors.As(err, &other) {
			w.Header().Set(headerLies, strconv.Itoa(other.space))
		}
		refuse(err.Error())
	}
}

// answerPeer answers what a process wants to know itself.
func (n *Node) answerPeer(w http.ResponseWriter, r *http.Request, o *serving, ask string) {
	body, err := io.ReadAll(r.Body)
	var v any
	if err == nil {
		v, err = n.answerTo(r.Context(), o, ask, body)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(v)
	}
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	_, _ = w.Write(text) // the process is gone
}

// owner returns who is to be asked about a space, if that is another process; left is closed when it has lost it, and
// changed when something has changed.
func (n *Node) owner(number int) (owner string, left, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.spaces[number]
	if s != nil && s.serving == nil && s.Owner != n.o.Self { // also one of which nothing is heard: it may be at work
		owner, left = s.Owner, s.left
	}

	return owner, left, n.changed
}

// most is how often a request is sent on at once when its namespace is not where it was said to be.
const most = 4

// pause waits for a change, but not for long.
func pause(ctx context.Context, until time.Time, changed <-chan struct{}) {
	again := time.NewTimer(min(time.Until(until), every) + time.Millisecond)
	defer again.Stop()
	select {
	case <-changed:
	case <-again.C:
	case <-ctx.Done():
	}
}

// find answers a request by whoever owns the space that it is for. It waits a little for an owner. A request that
// nobody has begun to answer is tried again, if its body is there as a whole.
func (n *Node) find(w http.ResponseWriter, r *http.Request, at where) {
	whole, text, sent := r.ContentLength >= 0 && r.ContentLength <= small, []byte(nil), r.Body
	if whole && r.ContentLength > 0 {
		var err error
		if text, err = io.ReadAll(r.Body); err != nil {
			problem.Write(w, r, err)
			return
		}
	}
	until := time.Now().Add(hold)
	sure, said := false, (*data.Where)(nil)
	for misses := 0; ; {
		if r.Body = sent; whole && r.ContentLength > 0 {
			r.Body = io.NopCloser(bytes.NewReader(text))
		}
		number, err := at.space, error(nil)
		if at.namespace != "" {
			number, err = n.lies(r.Context(), at.namespace)
		}
		owner, left, changed := n.owner(number)
		o := (*serving)(nil)
		if err != nil {
			owner = ""
		} else if o = n.enter(number); o != nil {
			if err = n.localOnce(w, r, o, at.namespace, sure); err == nil {
				return
			}
			owner = ""
		}

		if err == nil {
			err = n.noOwner(number)
		}
		if owner != "" {
			err = n.forward(w, r, at.namespace, sure, number, owner, left)
			n.counts.proxied(err)
			if err == nil {
				return
			}
		}
		if other := (*elsewhere)(nil); errors.As(err, &other) {
			// Whoever has lost a space may not know yet, and be wrong about what is in it. What the first space has kept is
			// right; and if it says the same before and after a refusal, the namespace was there all the while, or half removed.
			var now data.Where
			if wrong := n.call(r.Context(), 0, "where", at.namespace, &now); wrong == nil {
				n.lying.set(at.namespace, now.Space)
				sure = said != nil && *said == now && now.ID == ""
				said = &now
				if misses++; misses <= most && now.ID == "" && (whole || owner == "") {
					continue
				}
			}
		}
		// Only what was surely not done is tried again: or what changes nothing.
		var surely *notDone
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		repeat := owner == "" || whole && (errors.As(err, &surely) || reads)
		if !repeat || time.Now().After(until) || r.Context().Err() != nil {
			n.refuse(w, r, owner, err)
			return
		}
		pause(r.Context(), until, changed)
	}
}

// notDone is the error of a request that the owner surely has not begun to answer.
type notDone struct{ why error }

func (e *notDone) Error() string { return e.why.Error() }
func (e *notDone) Unwrap() error { return e.why }

// refuse answers a request that nobody has answered.
func (n *Node) refuse(w http.ResponseWriter, r *http.Request, owner string, err error) {
	var sure *notDone
	switch {
	case r.Context().Err() != nil:
		err = r.Context().Err()
	case owner == "":
		if other := (*elsewhere)(nil); errors.As(err, &other) {
			err = n.noOwner(other.space)
		}
	case errors.As(err, &sure):
		n.o.Logger.Debug("an owner did not answer", "owner", owner, "error", err.Error())
		err = &holdfast.Error{Class: problem.ErrStopping, Remedy: "come again in a second",
			Detail: fmt.Sprintf("the process that owns the data does not take requests: %v", err)}
	default:
		p := problem.Of(&holdfast.Error{Class: holdfast.ErrPoisoned, Cause: err, Remedy: "ask again, with the same ids",
			Detail: "the process that owns the data went away while it worked on this, and may have done it"})
		p.Status, p.Title = http.StatusBadGateway, http.StatusText(http.StatusBadGateway)
		err = &problem.Error{Problem: p}
	}
	problem.Write(w, r, err)
}

// forward passes a request on to the owner of a space. An error means that nothing was written of an answer.
func (n *Node) forward(w http.ResponseWriter, r *http.Request, namespace string, sure bool, number int, owner string,
	left <-chan struct{}) error {
	to, err := url.Parse(owner)
	if err != nil {
		return &notDone{err}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-left:
			cancel()
		}
	}()

	var failed error
	proxy := httputil.ReverseProxy{
		Transport: n.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host
			if to.Path != "" {
				p.Out.URL = to.JoinPath(p.Out.URL.EscapedPath())
				p.Out.URL.RawQuery = p.In.URL.RawQuery
			}
			p.Out.Host = p.In.Host
			p.Out.Header.Set(headerPeer, n.o.PeerToken)
			p.Out.Header.Set(headerSpace, strconv.Itoa(number))
			p.Out.Header.Set(headerFrom, p.In.RemoteAddr)
			for _, name := range []string{headerNamespace, headerSure, headerAsk} { // no client says these
				p.Out.Header.Del(name)
			}
			if namespace != "" {
				p.Out.Header.Set(headerNamespace, namespace)
			}
			if sure {
				p.Out.Header.Set(headerSure, "1")
			}
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
				if v, ok := p.In.Header[name]; ok {
					p.Out.Header[name] = v
				}
			}
		},
		ModifyResponse: func(res *http.Response) error {
			if why := res.Header.Get(headerRefused); why != "" && res.StatusCode == http.StatusMisdirectedRequest {
				_ = res.Body.Close()
				if lies := res.Header.Get(headerLies); lies != "" {
					space, _ := strconv.Atoi(lies)
					return &notDone{&elsewhere{space}}
				}
				if strings.Contains(why, "token") {
					n.o.Logger.Error("another process refuses this one", "owner", owner, "why", why)
				}

				return &notDone{errors.New(why)}
			}
			if res.StatusCode == problem.StatusClosed { // it was paused, and takes this process for gone
				_ = res.Body.Close()

				return errors.New("the owner gave the request up")
			}
			res.Header.Del(api.HeaderRequestID) // it is the same, and there already
			if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
				n.endWith(ctx, cancel)
			}

			return nil
		},
		ErrorHandler:  func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		FlushInterval: -1,
		ErrorLog:      nil,
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	var op *net.OpError
	if errors.As(failed, &op) && op.Op == "dial" {
		failed = &notDone{failed}
	}

	return failed
}

// endWith ends a stream of events when this process stops: its reader comes again, to another one.
func (n *Node) endWith(ctx context.Context, cancel func()) {
	go func() {
		select {
		case <-ctx.Done():
		case <-n.front.Stopping():
			cancel()
		}
	}()
}
