package main

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/query"
)

type kvCommand struct {
	List kvList `cmd:"" help:"List buckets, and those in them, with the number of their keys."`
	Get  kvGet  `cmd:"" help:"Show the value of a key."`
	Dump kvDump `cmd:"" help:"Show all keys and values of a bucket, or of all."`
}

// inDatabase is where a command finds buckets: a directory, which is opened for reading only if its engine has that.
type inDatabase struct {
	Dir      string `required:"" help:"The directory. It must not be open elsewhere."                             placeholder:"DIR"  group:"Where:"`
	Database string `            help:"Name of the database. Default: the one without a name, which kv.On opens." placeholder:"NAME" group:"Where:"`
	JSON     bool   `            help:"Write JSON; of dump, one line for each key and bucket."                                                      name:"json"`
}

// argumentsHelp says how bytes are written on a command line.
const argumentsHelp = `Names of buckets and keys are shown as the command takes them: as they are, or, if they are ` +
	`not printable, or would be unclear, in double quotes with Go's escapes, such as '"\x00\x07"'.`

// view runs do with a transaction that reads the database.
func (c *inDatabase) view(do func(s *session, tx *kv.Tx) error) int {
	return inSession(c.JSON, func(s *session) (err error) {
		engine, closeEngine, err := openEngine(c.Dir, true, warnings())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeEngine()) }()
		db, err := kv.Open(engine, kv.Options{Name: c.Database, Level: engine.Capabilities().Strongest()})
		if err != nil {
			return err
		}
		if names, err := kv.Databases(engine); err != nil {
			return err
		} else if c.Database != "" && !slices.Contains(names, c.Database) {
			return &holdfast.Error{Class: holdfast.ErrNotFound, Detail: fmt.Sprintf("a database called %q", c.Database),
				Remedy: "holdfast inspect " + c.Dir + " names those that are there"}
		}
		return db.View(s.ctx, func(tx *kv.Tx) error { return do(s, tx) })
	})
}

// argument writes a name or key as the commands take it.
func argument(name []byte) string { return query.Name(name) }

// parseArguments reads what argument has written.
func parseArguments(args []string) (names []string, err error) {
	for _, arg := range args {
		name := arg
		if strings.HasPrefix(arg, `"`) {
			if name, err = strconv.Unquote(arg); err != nil {
				return nil, placeError(fmt.Sprintf("%.80q is not well quoted", arg), `write it as '"\x00\x07"'`)
			}
		}
		names = append(names, name)
	}
	return names, nil
}

func shownPath(path []string) (shown []string) {
	for _, name := range path {
		shown = append(shown, argument([]byte(name)))
	}
	return shown
}

// bucket returns the bucket of arguments, which must be there.
func bucket(tx *kv.Tx, args []string) (*kv.Bucket, []string, error) {
	path, err := parseArguments(args)
	if err != nil {
		return nil, nil, err
	}
	b := tx.Bucket(path...)
	there, err := b.Exists()
	if err == nil && !there {
		err = &holdfast.Error{Class: kv.ErrNoBucket, Detail: strings.Join(shownPath(path), " > "),
			Remedy: "see holdfast kv list"}
	}
	return b, path, err
}

// eachBucket calls do with the bucket of arguments and all that are in it, or with all buckets.
func eachBucket(tx *kv.Tx, args []string, do func(path []string, b *kv.Bucket) error) error {
	var each func(path []string, b *kv.Bucket) error
	within := func(path []string, names iter.Seq[string]) error {
		for name := range names {
			path := append(slices.Clip(path), name)
			if err := each(path, tx.Bucket(path...)); err != nil {
				return err
			}
		}
		return nil
	}
	each = func(path []string, b *kv.Bucket) error {
		if err := errors.Join(tx.Context().Err(), do(path, b)); err != nil {
			return err
		}
		return within(path, b.Buckets())
	}
	if len(args) == 0 {
		return within(nil, tx.Buckets())
	}
	b, path, err := bucket(tx, args)
	if err != nil {
		return err
	}
	return each(path, b)
}

type kvList struct {
	inDatabase
	Bucket []string `arg:"" optional:"" help:"Only this bucket and those in it: its name, after the names of those that it is in."`
}

// Help implements kong's interface for what follows the flags.
func (kvList) Help() string { return argumentsHelp }

// shownBucket is a bucket in JSON.
type shownBucket struct {
	Bucket   []string `json:"bucket"`
	Keys     int64    `json:"keys"`
	Sequence uint64   `json:"sequence"`
}

func (c *kvList) run() int {
	return c.view(func(s *session, tx *kv.Tx) error {
		var found []shownBucket
		if err := eachBucket(tx, c.Bucket, func(path []string, b *kv.Bucket) error {
			keys, err := b.Count()
			sequence, err2 := b.Sequence()
			found = append(found, shownBucket{shownPath(path), keys, sequence})
			return errors.Join(err, err2)
		}); err != nil {
			return err
		}
		return list(s, found, itself, columns("bucket", "keys#", "sequence#"), func(b shownBucket) []string {
			return []string{strings.Join(b.Bucket, " > "), num(b.Keys), strconv.FormatUint(b.Sequence, 10)}
		})
	})
}

// shownKey is a key in JSON.
type shownKey struct {
	Bucket []string `json:"bucket"`
	Key    string   `json:"key"`
	Value  *string  `json:"value,omitempty"`
	Base64 []byte   `json:"value_base64,omitempty"` // of a value that is no text
}

func showKey(path []string, key, value []byte) shownKey {
	k := shownKey{Bucket: shownPath(path), Key: argument(key)}
	if utf8.Valid(value) {
		text := string(value)
		k.Value = &text
	} else {
		k.Base64 = value
	}
	return k
}

type kvGet struct {
	inDatabase
	Path []string `arg:"" name:"bucket-and-key" help:"The names of the buckets that lead to the key, and the key."`
}

// Help implements kong's interface for what follows the flags.
func (kvGet) Help() string { return argumentsHelp + ` The value is written as it is, and a newline.` }

func (c *kvGet) run() int {
	return c.view(func(s *session, tx *kv.Tx) error {
		last := len(c.Path) - 1
		if last == 0 {
			return placeError("no bucket is named", "name the bucket, and then the key")
		}
		b, path, err := bucket(tx, c.Path[:last])
		if err != nil {
			return err
		}
		key, err := parseArguments(c.Path[last:])
		if err != nil {
			return err
		}
		value, err := b.Get([]byte(key[0]))
		if errors.Is(err, holdfast.ErrNotFound) {
			err = &holdfast.Error{Class: holdfast.ErrNotFound, Detail: fmt.Sprintf("key %s in bucket %s",
				argument([]byte(key[0])), strings.Join(shownPath(path), " > "))}
		}
		if err != nil {
			return err
		}
		if s.json {
			return s.document(showKey(path, []byte(key[0]), value))
		}
		_, err = s.out.Write(append(value, '\n'))
		return err
	})
}

type kvDump struct {
	inDatabase
	Bucket []string `arg:"" optional:"" help:"Only this bucket and those in it: its name, after the names of those that it is in."`
}

// Help implements kong's interface for what follows the flags.
func (kvDump) Help() string { return argumentsHelp }

func (c *kvDump) run() int {
	return c.view(func(s *session, tx *kv.Tx) error {
		return eachBucket(tx, c.Bucket, func(path []string, b *kv.Bucket) error {
			if s.json {
				sequence, err := b.Sequence()
				if err = errors.Join(err, s.line(struct {
					Bucket   []string `json:"bucket"`
					Sequence uint64   `json:"sequence"`
				}{shownPath(path), sequence})); err != nil {
					return err
				}
			}
			name := strings.Join(shownPath(path), " > ")
			for key, value := range b.All() {
				err := tx.Context().Err()
				switch {
				case err != nil:
				case s.json:
					err = s.line(showKey(path, key, value))
				default:
					_, err = fmt.Fprintf(s.out, "%s  %s  %s\n", name, argument(key), text(value))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}
