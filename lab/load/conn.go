package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/api"
)

// conn is one keep-alive connection of HTTP/1.1, which does no more than a load needs: the generator shares its
// processors with the server. It is for one goroutine, and connects again after an error.
type conn struct {
	address string // host:port
	headers string // of every request, each line ended

	net      net.Conn
	r        *bufio.Reader
	out, in  []byte
	deadline time.Time
}

// newConn returns a connection that is not made yet. Each header is a whole line without its end.
func newConn(address string, headers ...string) *conn {
	c := &conn{address: address, headers: "Host: " + address + "\r\n"}
	for _, h := range headers {
		c.headers += h + "\r\n"
	}

	return c
}

// answer is what a server answered. Its body is good until the next request.
type answer struct {
	status int
	level  string // what Holdfast-Level says, "" if the answer has none
	body   []byte
}

// ok is the error of an answer that has another status.
func (a answer) ok(status int) error {
	if a.status == status {
		return nil
	}

	return fmt.Errorf("status %d: %s", a.status, bytes.TrimSpace(a.body[:min(len(a.body), 300)]))
}

// answerWithin is how long a server may take for any answer. Deadlines are moved only now and then.
const (
	answerWithin = 2 * time.Minute
	moveDeadline = 20 * time.Second
)

// do makes a request, with a body if it is not nil, and reads the answer.
func (c *conn) do(method, path string, body []byte, headers ...string) (answer, error) {
	a, chunked, length, err := c.begin(method, path, body, headers)
	if err == nil {
		switch {
		case a.status == 204 || a.status == 304:
		case chunked:
			a.body, err = io.ReadAll(httputil.NewChunkedReader(c.r))
			if err == nil {
				_, err = c.r.Discard(2) // the trailer's end
			}
		case length >= 0:
			if cap(c.in) < length {
				c.in = make([]byte, length)
			}
			a.body = c.in[:length]
			_, err = io.ReadFull(c.r, a.body)
		default:
			err = errors.New("the answer does not say how long it is")
		}
	}
	if err != nil {
		c.close()
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}

	return a, nil
}

// ask is do, and an error if the answer is not 200.
func (c *conn) ask(method, path string, body []byte, headers ...string) (answer, error) {
	a, err := c.do(method, path, body, headers...)
	if err == nil {
		err = a.ok(200)
	}

	return a, err
}

// begin sends a request and reads the headers of the answer. length is -1 if the answer names none.
func (c *conn) begin(method, path string, body []byte, headers []string) (a answer, chunked bool, length int,
	err error) {
	if c.net == nil {
		if c.net, err = net.DialTimeout("tcp", c.address, 30*time.Second); err != nil {
			c.net = nil
			return a, false, -1, err
		}
		if c.r == nil {
			c.r = bufio.NewReaderSize(nil, 4<<10)
		}
		c.r.Reset(c.net)
		c.deadline = time.Time{}
	}
	if now := time.Now(); c.deadline.Sub(now) < answerWithin-moveDeadline {
		c.deadline = now.Add(answerWithin)
		if err := c.net.SetDeadline(c.deadline); err != nil {
			return a, false, -1, err
		}
	}
	out := append(c.out[:0], method...)
	out = append(append(append(out, ' '), path...), " HTTP/1.1\r\n"...)
	out = append(out, c.headers...)

	for _, h := range headers {
		out = append(append(out, h...), "\r\n"...)
	}
	if body != nil {
		out = append(out, "Content-Type: application/json\r\nContent-Length: "...)
		out = append(strconv.AppendInt(out, int64(len(body)), 10), "\r\n"...)
	}
	out = append(append(out, "\r\n"...), body...)
	c.out = out
	if _, err := c.net.Write(out); err != nil {
		return a, false, -1, err
	}
	line, err := c.line()
	if err != nil {
		return a, false, -1, err
	}
	if len(line) < 12 || string(line[:7]) != "HTTP/1." {
		return a, false, -1, fmt.Errorf("%q is no answer of HTTP/1.1", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, false, -1, fmt.Errorf("%q is no answer of HTTP/1.1", line)
	}

	length = -1
	for {
		if line, err = c.line(); err != nil || len(line) == 0 {
			return a, chunked, length, err
		}

		switch name, value, _ := bytes.Cut(line, []byte(":")); len(name) {
		case len(headerLength):
			if bytes.EqualFold(name, headerLength) {
				if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || length < 0 {
					return a, false, -1, fmt.Errorf("%q says no length", line)
				}
			} else if bytes.EqualFold(name, headerLevel) {
				a.level = levelName(bytes.TrimSpace(value))
			}
		case len(headerTransfer):
			chunked = chunked || bytes.EqualFold(name, headerTransfer) &&
				bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked"))
		}
	}
}

// The headers that matter. Those of the content's length and of the level are equally long.
var (
	headerLength   = []byte("Content-Length")
	headerTransfer = []byte("Transfer-Encoding")
	headerLevel    = []byte(api.HeaderLevel)
)

// levelName returns a level without making a string for each answer.
func levelName(value []byte) string {
	for _, name := range levelNames {
		if string(value) == name {
			return name
		}
	}

	return string(value)
}

// line reads a line without its end.
func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}

	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// streamBuffer is how much of a stream is read at once, in bytes: more than that of other answers, past whose buffer it
// is read then. A line is no longer.
const streamBuffer = 8 << 10

// stream makes a request whose answer goes on: see gets the lines that one read has completed, until the answer ends.
// The connection is over then.
func (c *conn) stream(path string, opened func(), see func(lines []byte)) error {
	defer c.close()
	a, chunked, _, err := c.begin("GET", path, nil, []string{"Accept: text/event-stream"})
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if a.status != 200 {
		a.body, _ = io.ReadAll(io.LimitReader(c.r, 300))
		return fmt.Errorf("GET %s: %w", path, a.ok(200))
	}
	if err := c.net.SetDeadline(time.Time{}); err != nil {
		return err
	}
	opened()
	from := io.Reader(c.r)
	if chunked {
		from = httputil.NewChunkedReader(c.r)
	}

	buffer, kept := make([]byte, streamBuffer), 0 // kept is how long the beginning of a line is that was read
	for {
		n, err := from.Read(buffer[kept:])
		text := buffer[:kept+n]
		whole := bytes.LastIndexByte(text, '\n') + 1
		if whole > 0 {
			see(text[:whole])
		}
		if kept = copy(buffer, text[whole:]); kept == len(buffer) && err == nil {
			err = fmt.Errorf("a line has more than %d bytes", kept)
		}
		if err != nil {
			return fmt.Errorf("GET %s: %w", path, err)
		}
	}
}

// close ends the connection; the next request makes a new one.
func (c *conn) close() {
	if c.net != nil {
		c.net.Close()
		c.net = nil
	}
}

// hostOf is the host and port of a URL of plain HTTP.
func hostOf(url string) (string, error) {
	host, ok := strings.CutPrefix(url, "http://")
	host = strings.TrimSuffix(host, "/")
	if _, _, err := net.SplitHostPort(host); !ok || err != nil || strings.ContainsAny(host, "/?#@") {
		return "", op.BadOption(fmt.Sprintf("%q is not the address of a server", url),
			"name one as http://127.0.0.1:8080, without a path; TLS is not measured")
	}

	return host, nil
}
