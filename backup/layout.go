package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/holdfastdb/holdfast"
)

// A bucket, or the part of it below a prefix, belongs to one database. Each Start begins a generation:
//
//	20261127T223400.123Z-9f86d081/             its beginning, and a random number; they ascend
//	    base/0000000042-20261127T224500.000Z   a Base: a whole state, by its files
//	    files/00000017.seg-0-00000002          bytes of a file, from an offset on, for the second base
//	    log/0000000043                         what the log has grown by
//	    thin/0000000042                        empty: up to there the log may be gone, see Prune
//
// No object is written twice with another content: a name has the random number of the generation, and within it a
// number that is used once. So nothing is written over, whoever writes, and no bucket has to support conditions.
//
// A state is a base, or a base and the objects of the log behind it without a gap, up to one that is a State. Bases are
// written after all that they name, and a State of the log after all before it: an upload that is cut off is not there.
//
// Base and log objects begin with a line: what they are, and the SHA-256 of all behind it. Files have theirs in bases.
const (
	baseMagic = "holdfast-base-1"
	logMagic  = "holdfast-log-1"

	stamp = "20060102T150405.000Z"
)

// Place is where the log has got to.
type Place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
}

// before reports whether a place comes before another one in the log.
func (p Place) before(q Place) bool {
	return cmp.Or(cmp.Compare(len(p.File), len(q.File)), cmp.Compare(p.File, q.File), cmp.Compare(p.Offset, q.Offset)) < 0
}

// Piece is a stretch of a file, as an object or a part of one.
type Piece struct {
	Object string `json:"object"`
	Skip   int64  `json:"skip,omitempty"` // bytes of the object before it
	Bytes  int64  `json:"bytes"`
	Sum    string `json:"sha256"`

	// If it is compressed or encrypted: how, and its length and sum as it is stored.
	Codec     string `json:"codec,omitempty"`
	Stored    int64  `json:"stored,omitempty"`
	StoredSum string `json:"stored_sha256,omitempty"`
}

// stored is how many bytes the piece takes.
func (p Piece) stored() int64 {
	if p.Codec == "" {
		return p.Bytes
	}

	return p.Stored
}

// File is a file of a state.
type File struct {
	Name   string  `json:"name"`
	Bytes  int64   `json:"bytes"`
	Pieces []Piece `json:"pieces"` // in order
}

// Base names all files of a state.
type Base struct {
	Generation string    `json:"generation"`
	Log        int       `json:"log"` // the objects of the log with higher numbers follow
	At         Place     `json:"at"`  // where the first of those begins
	End        Place     `json:"end"` // up to where the state has the log, which is At or behind it
	Time       time.Time `json:"time"`
	Database   string    `json:"database"`       // a sum of its random id
	Keys       string    `json:"keys,omitempty"` // a sum of the recipients, if it is encrypted
	LSN        uint64    `json:"lsn"`
	Mark       string    `json:"mark"` // the file HOLDFAST
	Files      []File    `json:"files"`
	Copy       *Copy     `json:"copy,omitempty"` // it is a copy of all keys of an engine that is not of logtree
}

// entry is the head of a log object; a line of JSON, before the bytes.
type entry struct {
	Prev  Place     `json:"prev"` // where the object before ended
	File  string    `json:"file"`
	From  int64     `json:"from"`
	Bytes int64     `json:"bytes"`
	State bool      `json:"state"` // what is there up to here is a state, of Time
	Time  time.Time `json:"time"`
	LSN   uint64    `json:"lsn"` // of the end of a state
	Codec string    `json:"codec,omitempty"`
}

// end is where the entry's bytes end.
func (e entry) end() Place { return Place{e.File, e.From + e.Bytes} }

func baseKey(gen string, log int, t time.Time) string {
	return fmt.Sprintf("%s/base/%010d-%s", gen, log, t.UTC().Format(stamp))
}

func thinKey(gen string, n int) string { return fmt.Sprintf("%s/thin/%010d", gen, n) }

func logKey(gen string, n int) string { return fmt.Sprintf("%s/log/%010d", gen, n) }

// seal puts a line before the bytes that says what they are and what their sum is.
func seal(magic string, b []byte) []byte {
	return append(fmt.Appendf(nil, "%s %x\n", magic, sha256.Sum256(b)), b...)
}

// unseal is the inverse of seal. ErrCorrupt: they are not what was sealed.
func unseal(magic, key string, b []byte) ([]byte, error) {
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	if !ok || string(line) != fmt.Sprintf("%s %x", magic, sha256.Sum256(rest)) {
		if m, _, _ := strings.Cut(string(line), " "); ok && m != magic && strings.HasPrefix(m, magic[:len(magic)-1]) {
			return nil, &holdfast.Error{Op: "read a backup", Path: key, Class: holdfast.ErrVersion,
				Detail: fmt.Sprintf("it is %q, this program knows %q", m, magic), Remedy: "use a newer holdfast"}
		}

		return nil, corrupt(key, "the checksum is wrong", nil)
	}

	return rest, nil
}

// corrupt is the error of an object that is not what it was.
func corrupt(key, detail string, cause error) error {
	return &holdfast.Error{Op: "read a backup", Path: key, Class: holdfast.ErrCorrupt, Detail: detail, Cause: cause}
}

// failed is the error of a request.
func failed(op, key string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound && op == "get" {
		return corrupt(key, "it is missing", err)
	}
	e := &holdfast.Error{Op: op, Path: key, Cause: err}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		e.Remedy = "does the bucket exist?"
	case gcerrors.PermissionDenied:
		e.Remedy = "the credentials must be allowed to list, read and write objects there"
	}

	return e
}

// decode reads a JSON text that is all of b.
func decode(key string, b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return corrupt(key, "it makes no sense", err)
	}

	return nil
}

// newGeneration returns a name behind those of all that are there, also if this machine's clock is behind.
func newGeneration(ctx context.Context, bucket *blob.Bucket, now time.Time) (string, error) {
	gens, err := generations(ctx, bucket)
	if err != nil {
		return "", err
	}
	if n := len(gens); n > 0 {
		if last, err := genTime(gens[n-1]); err == nil && !now.Truncate(time.Millisecond).After(last) {
			now = last.Add(time.Millisecond)
		}
	}
	var id [4]byte
	rand.Read(id[:])

	return now.UTC().Format(stamp) + "-" + hex.EncodeToString(id[:]), nil
}

// genTime is when a generation began.
func genTime(gen string) (time.Time, error) {
	text, _, ok := strings.Cut(gen, "-")
	if !ok {
		return time.Time{}, fmt.Errorf("%q is no generation", gen)
	}

	return time.Parse(stamp, text)
}

// generations lists what is in the bucket, the oldest first.
func generations(ctx context.Context, bucket *blob.Bucket) (gens []string, err error) {
	list := bucket.List(&blob.ListOptions{Delimiter: "/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.Sort(gens)
			return gens, nil
		}
		if err != nil {
			return nil, err
		}
		gen := strings.TrimSuffix(o.Key, "/")
		if _, err := genTime(gen); err == nil && o.IsDir {
			gens = append(gens, gen)
		}
	}
}

// baseName is a base by its name.
type baseName struct {
	key  string
	log  int
	time time.Time
}

// bases lists the bases of a generation, the oldest first.
func bases(ctx context.Context, bucket *blob.Bucket, gen string) (names []baseName, err error) {
	prefix := gen + "/base/"
	list := bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.SortFunc(names, func(a, b baseName) int { return strings.Compare(a.key, b.key) })
			return names, nil
		}
		if err != nil {
			return nil, failed("list", prefix, err)
		}
		n := baseName{key: o.Key}
		number, text, _ := strings.Cut(strings.TrimPrefix(o.Key, prefix), "-")
		var failed error
		if n.time, failed = time.Parse(stamp, text); failed == nil {
			if _, failed = fmt.Sscanf(number, "%d", &n.log); failed == nil {
				names = append(names, n)
			}
		}
	}
}

// readBase reads a base.
func readBase(ctx context.Context, bucket *blob.Bucket, key string) (*Base, error) {
	b, err := bucket.ReadAll(ctx, key)
	if err != nil {
		return nil, failed("get", key, err)
	}
	if b, err = unseal(baseMagic, key, b); err != nil {
		return nil, err
	}
	base := &Base{}

	return base, decode(key, b, base)
}

// readLog reads a log object and what it has; found is false if there is none.
func readLog(ctx context.Context, bucket source, gen string, n int) (
	e entry, body []byte, found bool, err error,
) {
	key := logKey(gen, n)
	b, err := bucket.ReadAll(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return e, nil, false, nil
	}
	if err != nil {
		return e, nil, false, failed("get", key, err)
	}
	if b, err = unseal(logMagic, key, b); err != nil {
		return e, nil, false, err
	}
	head, body, _ := bytes.Cut(b, []byte("\n"))
	if err := decode(key, head, &e); err != nil {
		return e, nil, false, err
	}
	if !plain(e.File) || e.Bytes < 0 || e.Bytes > maxLogObject {
		return e, nil, false, corrupt(key, "it makes no sense", nil)
	}
	if e.Codec != "" && !bucket.sealed {
		var out bytes.Buffer
		r, err := bucket.reader(e.Codec, bytes.NewReader(body))
		if err == nil {
			_, err = io.Copy(&out, io.LimitReader(r, e.Bytes+1))
			err = errors.Join(err, r.Close())
		}
		if errors.Is(err, holdfast.ErrBadOption) || errors.Is(err, holdfast.ErrVersion) {
			return e, nil, false, &holdfast.Error{Op: "read a backup", Path: key, Cause: err}
		}
		if err != nil {
			return e, nil, false, corrupt(key, "it cannot be decoded", err)
		}
		body = out.Bytes()
	}
	if int64(len(body)) != e.Bytes && !(bucket.sealed && e.Codec != "") {
		return e, nil, false, corrupt(key, "it makes no sense", nil)
	}

	return e, body, true, nil
}

// plain reports whether a name is one of a file in a directory, and cannot lead elsewhere.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\:\x00")
}
