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
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// A bucket, or the part of it below a prefix, belongs to one database. Each Start begins a generation:
//
//	20261127T223400.123Z-9f86d081/             its beginning, and a random number; they ascend
//	    base/0000000042-20261127T224500.000Z   a Base: a whole state, by its files
//	    files/00000017.seg-0-00000002          bytes of a file, from an offset on, for the second base
//	    log/0000000043                         what the log has grown by
//	    thin/0000000042                        empty: up to there the log may be gone, see Prune
//	    verified/20261128T030000.000Z          empty: then all that was in the bucket was good, see Options.VerifyEvery
//
// No object is written twice with another content: a name has the random number of the generation, and within it a
// number that is used once. So nothing is written over, whoever writes, and no bucket has to support conditions.
//
// A state is a base, or a base and the objects of the log behind it without a gap, up to one that is a State. Bases are
// written after all that they name, and a State of the log after all before it: an upload that is cut off is not there.
//
// Base and log objects begin with a line: what they are, and the SHA-256 of all of a base that is behind it, or of the
// next line of a log object, which has that of the rest. Files have theirs in bases. In log objects of version 1 it is
// the SHA-256 of all behind the first line.
const (
	baseMagic = "holdfast-base-1"
	logMagic  = "holdfast-log-2"
	oldMagic  = "holdfast-log-1"

	headRoom = 1 << 10 // of a log object's buffer, before its contents

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

// entry is the head of a log object; a line of JSON, before its contents.
type entry struct {
	Prev  Place     `json:"prev"` // where the object before ended
	File  string    `json:"file"`
	From  int64     `json:"from"`
	Bytes int64     `json:"bytes"`
	State bool      `json:"state"` // what is there up to here is a state, of Time
	Time  time.Time `json:"time"`
	LSN   uint64    `json:"lsn"` // of the end of a state
	Codec string    `json:"codec,omitempty"`
	Sum   string    `json:"sha256,omitempty"` // of the contents as they are stored, from version 2 on
}

// end is where the entry's bytes end.
func (e entry) end() Place { return Place{e.File, e.From + e.Bytes} }

func baseKey(gen string, log int, t time.Time) string {
	return fmt.Sprintf("%s/base/%010d-%s", gen, log, t.UTC().Format(stamp))
}

func thinKey(gen string, n int) string { return fmt.Sprintf("%s/thin/%010d", gen, n) }

func verifiedKey(gen string, t time.Time) string {
	return fmt.Sprintf("%s/verified/%s", gen, t.UTC().Format(stamp))
}

func logKey(gen string, n int) string { return fmt.Sprintf("%s/log/%010d", gen, n) }

// seal puts a line before the bytes that says what they are and what their sum is.
func seal(magic string, b []byte) []byte {
	return append(fmt.Appendf(nil, "%s %x\n", magic, sha256.Sum256(b)), b...)
}

// sealLog makes a log object of an entry and its contents, which are in a buffer behind headRoom bytes. skip is how
// many bytes of the object are before the contents.
func sealLog(e entry, buffer []byte) (object []byte, skip int64, err error) {
	head, err := json.Marshal(e)
	if err != nil {
		return nil, 0, err
	}
	head = append(seal(logMagic, head), '\n')
	skip = int64(len(head))
	if len(head) > headRoom {
		return append(head, buffer[headRoom:]...), skip, nil
	}
	object = buffer[headRoom-len(head):]
	copy(object, head)

	return object, skip, nil
}

// openLog is the inverse of sealLog, of any version. ErrCorrupt: it is not what was sealed.
func openLog(key string, b []byte) (e entry, contents []byte, err error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	head, contents, _ := bytes.Cut(rest, []byte("\n"))
	old := bytes.HasPrefix(first, []byte(oldMagic+" "))
	if old {
		err = checkSeal(oldMagic, key, first, rest)
	} else {
		err = checkSeal(logMagic, key, first, head)
	}
	if err == nil {
		err = decode(key, head, &e)
	}
	if err == nil && !old && e.Sum != sum(contents) {
		err = corrupt(key, "the checksum is wrong", nil)
	}

	return e, contents, err
}

// unseal is the inverse of seal. ErrCorrupt: they are not what was sealed.
func unseal(magic, key string, b []byte) ([]byte, error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest, checkSeal(magic, key, first, rest)
}

// checkSeal checks the first line of an object, without its end, against what it seals.
func checkSeal(magic, key string, first, sealed []byte) error {
	if string(first) == fmt.Sprintf("%s %x", magic, sha256.Sum256(sealed)) {
		return nil
	}
	m, _, _ := strings.Cut(string(first), " ")
	if kind := strings.TrimRight(magic, "0123456789"); m != magic && m != oldMagic && strings.HasPrefix(m, kind) {
		return &holdfast.Error{Op: "read a backup", Path: key, Class: holdfast.ErrVersion,
			Detail: fmt.Sprintf("it is %q, this program knows %q", m, magic), Remedy: "use a newer holdfast"}
	}

	return corrupt(key, "the checksum is wrong", nil)
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
	answer, _ := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err)
	switch {
	case datadir.NoRoom(err) || answer != nil && answer.HTTPStatusCode() == http.StatusInsufficientStorage:
		e.Class, e.Remedy = holdfast.ErrFull, "make room in the bucket, or keep fewer states there"

	// Before rights, for it comes as such.
	case skewed(err):
		e.Remedy = "set the clock of this machine"
	case gcerrors.Code(err) == gcerrors.NotFound:
		e.Remedy = "does the bucket exist?"
	case gcerrors.Code(err) == gcerrors.PermissionDenied:
		e.Remedy = "the credentials must be allowed to list, read and write objects there"
		if op == "delete" {
			e.Remedy = "the credentials must be allowed to delete objects there, or all states must be kept"
		}
	case errors.Is(err, fs.ErrPermission):
		e.Remedy = "this user must be allowed to read and write there"
	}

	return e
}

// skewed reports whether a request was refused for its time.
func skewed(err error) bool {
	code, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)

	return ok && code.ErrorCode() == "RequestTimeTooSkewed"
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
		o, err := next(ctx, list)
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
		o, err := next(ctx, list)
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
	b, err := readObject(ctx, bucket, key)
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
	b, err := readObject(ctx, bucket.Bucket, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return e, nil, false, nil
	}
	if err != nil {
		return e, nil, false, failed("get", key, err)
	}
	if !bucket.limit.wait(ctx, len(b)) {
		return e, nil, false, context.Cause(ctx)
	}
	if e, body, err = openLog(key, b); err != nil {
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
