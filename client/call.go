package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
)

// request is what a call asks for.
type request struct {
	op     string // for errors
	method string
	path   string // escaped
	query  url.Values
	body   any           // JSON
	raw    io.Reader     // instead of body; read once
	header http.Header   // besides the usual ones
	wait   time.Duration // how long the server is asked to wait
	long   bool          // the server may take any time
	safe   bool          // does no harm if it is done twice
	always bool          // is tried again until ctx ends
	space  *string       // whose owner answers; nil means the namespace in the path

	// refused is called with an answer of success that is too large or cannot be read.
	refused func(answer io.Reader)

	lost bool // an answer was
}

// call makes a request until it is answered, and reads the answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, r *request, out any) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	body, err := encode(r)
	if err != nil {
		return err
	}

	return c.repeat(ctx, r, func() *Error { return c.try(ctx, r, body, out) })
}

// repeat calls once, which makes a request once, until that is answered.
func (c *Client) repeat(ctx context.Context, r *request, once func() *Error) error {
	pause, began := c.pause(), time.Now()
	for try := 1; ; try++ {
		err := once()
		if err == nil {
			return nil
		}

		// The context may have ended while the server was at work.
		r.heard(err)
		if ctx.Err() != nil {
			return c.ended(ctx, r, err)
		}
		again := err.passing() && (r.safe || !r.lost) && c.o.Retry >= 0
		next := pause.next(err.After)
		if !again || !r.always && time.Since(began)+next > c.o.Retry {
			return err
		}
		level := c.log.Debug
		if r.always && try%8 == 4 { // after seconds, and then every half a minute or so
			level = c.log.Warn
		}
		level("the server cannot be asked; trying again", "op", r.op, "error", err, "in", next)
		if !sleep(ctx, next) {
			return c.ended(ctx, r, err)
		}
	}
}

// heard notes what became of a try that has failed. Whether the server may have done it is remembered over all tries: a
// later refusal does not undo an earlier success.
func (r *request) heard(err *Error) {
	if err.Unknown || err.Status == 0 && !neverSent(err.Cause) ||
		err.Status != 0 && err.passing() && !err.notDone() {
		r.lost = true
	}
	err.Unknown = r.lost && r.method != http.MethodGet
}

// ended is the error of a call whose context has ended.
func (c *Client) ended(ctx context.Context, r *request, last *Error) error {
	cause := ctx.Err()
	if last != nil && last.Cause != nil && !errors.Is(last.Cause, cause) {
		cause = fmt.Errorf("%w, after %w", cause, last.Cause)
	}

	return &Error{Op: r.op, Cause: cause, Unknown: r.lost && r.method != http.MethodGet}
}

// once is call without a second try.
func (c *Client) once(ctx context.Context, r *request, out any) error {
	body, err := encode(r)
	if err != nil {
		return err
	}
	if err := c.try(ctx, r, body, out); err != nil {
		r.heard(err)

		return c.broken(ctx, r, err)
	}

	return nil
}

// pages makes a request for lists of what comes after something, from after on, until there is no more, or limit, 0 for
// all. take takes each, and returns what the next list is to come after.
func pages[T any](ctx context.Context, c *Client, r *request, after string, limit int, take func(*T) string) error {
	if limit < 0 {
		return &Error{Op: r.op, Code: api.CodeBadRequest, Detail: "a limit below 0"}
	}
	query := maps.Clone(r.query)
	if query == nil {
		query = url.Values{}
	}
	for n := 0; limit == 0 || n < limit; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-n)
		}
		query.Set("limit", strconv.Itoa(size))
		if after != "" {
			query.Set("after", after)
		}
		var part []T
		page := *r
		page.query = query
		if err := c.call(ctx, &page, &part); err != nil || len(part) == 0 {
			return err
		}

		for i := range part {
			after = take(&part[i])
		}
		n += len(part)
	}

	return nil
}

// broken is the error of the only try of a call: that of its context, if the answer broke off because that has ended.
func (c *Client) broken(ctx context.Context, r *request, err *Error) error {
	if err.Status == 0 && ctx.Err() != nil {
		return c.ended(ctx, r, err)
	}

	return err
}

// try makes a request once.
func (c *Client) try(ctx context.Context, r *request, body []byte, out any) *Error {
	if !r.long {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.o.Timeout+r.wait)
		defer cancel()
	}
	resp, e := c.send(ctx, r, body)
	if e != nil {
		return e
	}
	defer resp.Body.Close()
	// What is not read of a short answer is, so that the connection can be used again.
	defer io.CopyN(io.Discard, resp.Body, 4<<10)
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}

	// An answer of success that cannot be used is a lost one: the server may have done what it was asked for. Where the
	// caller wants nothing of it, it must still be JSON, or something else has answered.
	unknown := r.method != http.MethodGet
	data, err := io.ReadAll(io.LimitReader(resp.Body, c.o.MaxResponse+1))
	switch {
	case err != nil:
		return &Error{Op: r.op, Cause: fmt.Errorf("the answer broke off: %w", err)}
	case int64(len(data)) > c.o.MaxResponse:
		r.refuse(io.MultiReader(bytes.NewReader(data), resp.Body))

		return &Error{Op: r.op, Status: resp.StatusCode, Code: api.CodeTooLarge, Unknown: unknown,
			Detail: fmt.Sprintf("the answer has more than %d bytes; ask for less, or raise MaxResponse", c.o.MaxResponse)}
	}
	if out == nil {
		if len(data) == 0 {
			return nil
		}
		out = new(any)
	}
	if err := json.Unmarshal(data, out); err != nil {
		r.refuse(bytes.NewReader(data))

		return &Error{Op: r.op, Status: resp.StatusCode, Unknown: unknown,
			Detail: fmt.Sprintf("the answer cannot be read (%v); is this the address of a Holdfast server?", err)}
	}

	return nil
}

// refuse hands an answer that cannot be used to the request, if it wants it.
func (r *request) refuse(answer io.Reader) {
	if r.refused != nil {
		r.refused(answer)
	}
}

// send makes a request and returns the answer if it is one of success. The caller closes its body.
func (c *Client) send(ctx context.Context, r *request, body []byte) (*http.Response, *Error) {
	// A name that makes the path another one would reach another operation.
	if strings.Contains(r.path, "//") || strings.HasSuffix(r.path, "/") {
		return nil, &Error{Op: r.op, Status: http.StatusBadRequest, Code: api.CodeBadRequest,
			Detail: `a name or an id cannot stand in a path: it is empty, of slashes alone, or has "." or ".." as a part`}
	}
	if o := c.owners.get(r.spaceOf()); o != nil && !ofProcess(r.path) {
		if resp, e, again := c.direct(ctx, r, body, o); !again {
			return resp, e
		}
	}

	return c.ask(ctx, r, body, c.base)
}

// ask makes a request to a process.
func (c *Client) ask(ctx context.Context, r *request, body []byte, base string) (*http.Response, *Error) {
	address := base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	from := r.raw
	if body != nil {
		from = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, from)
	if err != nil {
		return nil, &Error{Op: r.op, Status: http.StatusBadRequest, Code: api.CodeBadRequest, Detail: err.Error()}
	}

	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	if level := c.level(ctx); level != 0 {
		req.Header.Set(api.HeaderLevel, level.String())
	}

	asked := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // it names the address, with all of the query
		}

		return nil, &Error{Op: r.op, Cause: err}
	}
	owner := resp.Header.Get(api.HeaderOwner)
	if owner != "" {
		c.owners.learn(r.spaceOf(), owner, c.base, asked)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return nil, &Error{Op: r.op, Status: resp.StatusCode, Cause: fmt.Errorf("the answer broke off: %w", err)}
	}

	e := answered(r.op, resp.StatusCode, resp.Header, text)
	e.owned = owner != ""

	return nil, e
}

// download copies the answer of a request to w.
func (c *Client) download(ctx context.Context, r *request, w io.Writer) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	resp, e := c.send(ctx, r, nil)
	if e != nil {
		return c.broken(ctx, r, e)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.broken(ctx, r, &Error{Op: r.op, Cause: err})
	}

	return nil
}

// encode makes the body of a request, once for all tries.
func encode(r *request) ([]byte, error) {
	if r.body == nil {
		return nil, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // payloads keep their bytes
	if err := e.Encode(r.body); err != nil {
		return nil, &Error{Op: r.op, Status: http.StatusBadRequest, Code: api.CodeBadRequest, Detail: err.Error()}
	}

	return b.Bytes(), nil
}

// neverSent reports whether an error of a connection means that nothing was sent.
func neverSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError

	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// pauses are those between tries.
type pauses struct{ first, max, now time.Duration }

// pause begins the pauses of a call.
func (c *Client) pause() *pauses { return &pauses{c.firstPause, c.maxPause, c.firstPause} }

// next returns how long to wait: at least what the server has asked for. It doubles each time, and is made longer by
// chance, so that clients which lost a server together do not come back together.
func (p *pauses) next(asked time.Duration) time.Duration {
	d := p.now/2 + rand.N(p.now/2+1)
	p.now = min(2*p.now, p.max)
	if asked > d {
		d = asked + rand.N(asked/4+1)
	}

	return d
}

// reset begins anew, after the server was heard.
func (p *pauses) reset() { p.now = p.first }

// sleep returns false if ctx ends before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// level is the one that writes under ctx are to reach, 0 if the server is to choose.
func (c *Client) level(ctx context.Context) holdfast.Level {
	return holdfast.LevelFrom(ctx, c.o.Level)
}
