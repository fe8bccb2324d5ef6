package query

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"

	"github.com/holdfastdb/holdfast"
)

// SQLite sees that its query is to end between two steps of a statement, and a call of a function is a part of one. So
// a function that takes its arguments' lengths multiplied, where others take their sum, holds a processor for hours
// beyond any limit of time: instr of two texts of 30 MB compares 10^15 bytes. Those functions are replaced here by ones
// that do the same and take no longer than their arguments are, or look whether they are to end.

// endless are functions of that kind which are not replaced: nobody looks for anything with them.
var endless = map[string]bool{"json_patch": true, "jsonb_patch": true}

// maxArguments is how many arguments a call has at most. Functions of JSON go over a document for each.
const maxArguments = 100

// addFunctions replaces functions.
func (db *DB) addFunctions() error {
	for _, f := range []struct {
		name string
		args int
		call sqlite3.ScalarFunction
	}{
		{"instr", 2, instr},
		{"replace", 3, db.replace},
		{"trim", 2, func(c sqlite3.Context, a ...sqlite3.Value) { trim(c, a, true, true) }},
		{"ltrim", 2, func(c sqlite3.Context, a ...sqlite3.Value) { trim(c, a, true, false) }},
		{"rtrim", 2, func(c sqlite3.Context, a ...sqlite3.Value) { trim(c, a, false, true) }},
		{"unhex", 2, func(c sqlite3.Context, _ ...sqlite3.Value) {
			c.ResultError(errors.New("unhex takes one argument here"))
		}},
		{"like", 2, db.like},
		{"like", 3, db.like},
		{"glob", 2, db.glob},
	} {
		call := func(c sqlite3.Context, args ...sqlite3.Value) {
			// Where SQLite has no memory left for a result, the library panics.
			if err := guarded(func() error { f.call(c, args...); return nil }); err != nil {
				c.ResultError(err)
			}
		}
		flags := sqlite3.DETERMINISTIC | sqlite3.INNOCUOUS
		if err := db.conn.CreateFunction(f.name, f.args, flags, call); err != nil {
			return err
		}
	}

	return nil
}

func null(args []sqlite3.Value) bool {
	for _, a := range args {
		if a.Type() == sqlite3.NULL {
			return true
		}
	}

	return false
}

// result is a text, also if it is empty.
func result(c sqlite3.Context, text []byte) {
	if len(text) == 0 {
		text = []byte{} // nothing would be null
	}
	c.ResultRawText(text)
}

// instr is where one text is in another, from 1, in characters; in bytes for blobs.
func instr(c sqlite3.Context, args ...sqlite3.Value) {
	if null(args) {
		return
	}
	if args[0].Type() == sqlite3.BLOB && args[1].Type() == sqlite3.BLOB {
		c.ResultInt64(int64(bytes.Index(args[0].RawBlob(), args[1].RawBlob()) + 1))
		return
	}
	args[0].RawText() // what is to be made a text is, before either is looked at
	args[1].RawText()
	in, what := args[0].RawText(), args[1].RawText()
	at := bytes.Index(in, what)
	if at > 0 && len(what) > 0 && !utf8.RuneStart(what[0]) { // in the middle of a character
		at = -1
	}
	if at > 0 {
		at = 1 + starts(in[1:at])
	}
	c.ResultInt64(int64(at + 1))
}

// starts counts the characters that begin in b.
func starts(b []byte) (n int) {
	for _, c := range b {
		if utf8.RuneStart(c) {
			n++
		}
	}

	return n
}

// replace is the first text with the third in place of each of the second.
func (db *DB) replace(c sqlite3.Context, args ...sqlite3.Value) {
	if null(args[:2]) {
		return
	}
	for _, a := range args {
		a.RawText()
	}
	in, what, by := args[0].RawText(), args[1].RawText(), args[2].RawText()
	if len(what) == 0 || what[0] == 0 {
		result(c, in)
		return
	}
	if null(args[2:]) {
		return
	}
	// The result is made here, so it is held to SQLite's limit before.
	n := int64(bytes.Count(in, what))
	if size := int64(len(in)) + n*int64(len(by)-len(what)); size > int64(db.longest) {
		c.ResultError(sqlite3.TOOBIG)
		return
	}
	result(c, bytes.ReplaceAll(in, what, by))
}

// trim removes characters at the ends of a text.
func trim(c sqlite3.Context, args []sqlite3.Value, left, right bool) {
	if null(args) {
		return
	}
	args[0].RawText()
	args[1].RawText()
	in, set := args[0].RawText(), map[string]bool{}
	for of := untilZero(args[1].RawText()); len(of) > 0; {
		_, n := utf8.DecodeRune(of)
		set[string(of[:n])] = true
		of = of[n:]
	}
	for left && len(in) > 0 {
		_, n := utf8.DecodeRune(in)
		if !set[string(in[:n])] {
			break
		}
		in = in[n:]
	}
	for right && len(in) > 0 {
		_, n := utf8.DecodeLastRune(in)
		if !set[string(in[len(in)-n:])] {
			break
		}
		in = in[:len(in)-n]
	}
	result(c, in)
}

// like compares the second argument with the pattern that is the first; the third is what escapes.
func (db *DB) like(c sqlite3.Context, args ...sqlite3.Value) {
	p := pattern{db: db, all: '%', one: '_', fold: true}
	if len(args) == 3 && args[0].Type() != sqlite3.BLOB && args[1].Type() != sqlite3.BLOB {
		if args[2].Type() == sqlite3.NULL {
			return
		}
		r, n := utf8.DecodeRune(args[2].RawText())
		if n == 0 || n != len(args[2].RawText()) {
			c.ResultError(errors.New("ESCAPE expression must be a single character"))
			return
		}
		p.escape = r
		// What escapes is no wildcard any more.
		if r == p.all {
			p.all = none
		}
		if r == p.one {
			p.one = none
		}
	}
	p.call(c, args)
}

// glob does the same for patterns of files.
func (db *DB) glob(c sqlite3.Context, args ...sqlite3.Value) {
	p := pattern{db: db, all: '*', one: '?', sets: true}
	p.call(c, args)
}

// none is no character.
const none = -1

// pattern is one of like or glob.
type pattern struct {
	db       *DB
	all, one rune // stand for any characters, and for one
	escape   rune // 0 for none
	sets     bool // [a-z] stands for one of them
	fold     bool // letters of ASCII may be capital or not
	text     []byte
	steps    int
}

func (p *pattern) call(c sqlite3.Context, args []sqlite3.Value) {
	if args[0].Type() == sqlite3.BLOB || args[1].Type() == sqlite3.BLOB {
		c.ResultInt64(0)
		return
	}
	if null(args[:2]) {
		return
	}
	args[0].RawText()
	args[1].RawText()
	p.text = untilZero(args[0].RawText())
	matches, err := p.matches(untilZero(args[1].RawText()))
	if err != nil {
		p.db.failed = err
		c.ResultError(sqlite3.INTERRUPT)
		return
	}
	c.ResultBool(matches)
}

func untilZero(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}

	return b
}

// matches goes over a text. Where it does not go on, the last wildcard for many takes one character more: what came
// before that need not be tried again.
func (p *pattern) matches(text []byte) (bool, error) {
	at, retry, retryText := 0, -1, []byte(nil)
	for len(text) > 0 {
		if err := p.step(1); err != nil {
			return false, err
		}
		r, n := utf8.DecodeRune(p.text[at:])
		if n > 0 && r == p.all {
			at += n
			retry, retryText = at, text
			continue
		}
		c, size := utf8.DecodeRune(text)
		next, ok, err := p.character(at, c)
		if err != nil {
			return false, err
		}
		if ok {
			at, text = next, text[size:]
			continue
		}
		if retry < 0 {
			return false, nil
		}
		_, size = utf8.DecodeRune(retryText)
		retryText = retryText[size:]
		at, text = retry, retryText
	}
	for at < len(p.text) {
		r, n := utf8.DecodeRune(p.text[at:])
		if r != p.all {
			return false, nil
		}
		at += n
	}

	return true, nil
}

// step looks from time to time whether the query is to end.
func (p *pattern) step(n int) error {
	if p.steps += n; p.steps < 1<<16 {
		return nil
	}
	p.steps = 0

	return holdfast.CheckContext(p.db.ctx)
}

// character reports whether what the pattern has at a place matches a character, and where it goes on.
func (p *pattern) character(at int, c rune) (next int, ok bool, err error) {
	r, n := utf8.DecodeRune(p.text[at:])
	switch {
	case n == 0:
		return at, false, nil
	case r == p.escape && p.escape != 0:
		at += n
		if r, n = utf8.DecodeRune(p.text[at:]); n == 0 {
			return at, false, nil
		}
	case r == p.one:
		return at + n, true, nil
	case p.sets && r == '[':
		return p.set(at+n, c)
	}
	ok = r == c || p.fold && r < utf8.RuneSelf && c < utf8.RuneSelf && lower(r) == lower(c)

	return at + n, ok, nil
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}

	return r
}

// set is character for what stands in brackets.
func (p *pattern) set(at int, c rune) (next int, ok bool, err error) {
	begun := at
	read := func() (r rune, n int) {
		r, n = utf8.DecodeRune(p.text[at:])
		at += n
		return r, n
	}
	r, n := read()
	invert := n > 0 && r == '^'
	if invert {
		r, n = read()
	}
	if n > 0 && r == ']' { // the first one stands for itself
		ok = c == ']'
		r, n = read()
	}
	for before := rune(0); n > 0 && r != ']'; {
		if r == '-' && before > 0 && at < len(p.text) && p.text[at] != ']' {
			r, _ = read()
			ok = ok || before <= c && c <= r
			before = 0
		} else {
			ok = ok || r == c
			before = r
		}
		r, n = read()
	}
	if err := p.step(at - begun); err != nil {
		return at, false, err
	}

	return at, n > 0 && ok != invert, nil
}
