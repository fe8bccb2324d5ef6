package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast/api"
)

// An answer to a claim that is too large, or cannot be read, is an error, and nobody will see what was claimed. The
// claims are given back, so that the attempts do not count and others get them: the answer is read on to its end for
// what names them, and nothing else of it is kept.

// giveBack is the timeout for giving back what was claimed with an answer that cannot be used.
const giveBack = 10 * time.Second

// returns gives claims back that nobody has seen: path takes body.
func (c *Client) returns(ctx context.Context, op, path string, body any, n int) {
	if n == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	if err := c.call(ctx, &request{op: op + " return", method: "POST", path: path, body: body, safe: true},
		nil); err != nil {
		c.log.Warn("what was claimed with an answer that cannot be used could not be given back: its leases run out",
			"op", op, "error", err)
	}
}

// deliveriesIn finds the deliveries that an answer to a claim of messages has.
func deliveriesIn(answer io.Reader) (refs []api.DeliveryRef) {
	var one api.DeliveryRef
	scan(answer, func(at string, text []byte) {
		switch at {
		case ".deliveries[].global":
			one.Global, _ = strconv.ParseInt(string(text), 10, 64)
		case ".deliveries[].token":
			one.Token, _ = strconv.ParseUint(string(text), 10, 64)
		case ".deliveries[]":
			refs, one = append(refs, one), api.DeliveryRef{}
		}
	})

	return refs
}

// leasesIn finds the leases that an answer to a claim of tasks has.
func leasesIn(answer io.Reader) (refs []api.LeaseRef) {
	var one api.LeaseRef
	scan(answer, func(at string, text []byte) {
		switch at {
		case ".leases[].task.id":
			_ = json.Unmarshal(text, &one.ID)
		case ".leases[].token":
			one.Token, _ = strconv.ParseUint(string(text), 10, 64)
		case ".leases[]":
			refs, one = append(refs, one), api.LeaseRef{}
		}
	})

	return refs
}

// maxKept is how long a value may be that scan tells of, in bytes.
const maxKept = 16 << 10

// scan reads JSON up to its end, or to where it breaks off, and tells of the values in its objects and lists as far
// down as what was claimed is named: of texts and numbers as they stand there, and of each object that is closed,
// without a text.
func scan(from io.Reader, found func(at string, text []byte)) {
	s := scanner{r: bufio.NewReaderSize(from, 64<<10), found: found}
	_ = s.value("", 0)
}

// scanner reads JSON byte by byte, and keeps no more than one value of limited length.
type scanner struct {
	r     *bufio.Reader
	found func(at string, text []byte)
	kept  []byte
}

// deepest is how many objects and lists are around the values that are told of: the answer, its list, an item of that,
// and the task in it.
const deepest = 4

// value reads one value, which stands where at says.
func (s *scanner) value(at string, depth int) error {
	c, err := s.next()
	switch {
	case err != nil:
		return err
	case c == '"':
		err := s.text()
		s.found(at, s.kept)

		return err
	case c != '{' && c != '[':
		// A number or a word ends before the next punctuation or space, which belongs to what encloses it.
		s.kept = append(s.kept[:0], c)
		for {
			c, err := s.r.ReadByte()
			if err != nil || c == ',' || c == '}' || c == ']' || c <= ' ' {
				s.found(at, s.kept)
				if err == nil {
					err = s.r.UnreadByte()
				}

				return err
			}
			s.keep(c)
		}
	case depth == deepest:
		return s.skip()
	}

	for {
		end, err := s.next()
		switch {
		case err != nil:
			return err
		case end == '}':
			s.found(at, nil)
			return nil
		case end == ']':
			return nil
		}

		// In an object each value has a name before it; in an array the byte that was read belongs to the value.
		below := at + "[]"
		if c == '{' {
			if err := s.text(); err != nil {
				return err
			}
			var name string
			_ = json.Unmarshal(s.kept, &name)
			below = at + "." + name
		} else if err := s.r.UnreadByte(); err != nil {
			return err
		}
		if err := s.value(below, depth+1); err != nil {
			return err
		}
	}
}

// next returns the next byte that is neither space nor a comma or colon.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil || c > ' ' && c != ',' && c != ':' {
			return c, err
		}
	}
}

// keep keeps a byte of a value, up to the limit: what names a claim is short.
func (s *scanner) keep(c byte) {
	if len(s.kept) < maxKept {
		s.kept = append(s.kept, c)
	}
}

// text reads on behind a quotation mark to the one that ends the text, and keeps both and what is between them.
func (s *scanner) text() error {
	s.kept = append(s.kept[:0], '"')
	for escaped := false; ; {
		c, err := s.r.ReadByte()
		if err != nil {
			return err
		}
		s.keep(c)

		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			return nil
		}
	}
}

// skip reads on behind the beginning of an object or a list to its end, however deep it is.
func (s *scanner) skip() error {
	for depth := 1; depth > 0; {
		c, err := s.r.ReadByte()
		if err != nil {
			return err
		}

		switch c {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
	}

	return nil
}
