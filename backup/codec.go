package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob"

	"github.com/holdfastdb/holdfast"
)

// codec is what is done to the contents of objects: first they are compressed, then encrypted.
type codec struct {
	compress   bool
	recipients []age.Recipient
	keys       string // a sum of the recipients, to tell them from others
}

// The names of codecs.
const (
	zstdName = "zstd"
	ageName  = "age"
)

// newCodec reads recipients.
func newCodec(compress bool, recipients []string) (c codec, err error) {
	c.compress = compress
	if len(recipients) == 0 {
		return c, nil
	}
	recipients = slices.Sorted(slices.Values(recipients))
	text := strings.Join(recipients, "\n")
	if c.recipients, err = age.ParseRecipients(strings.NewReader(text)); err != nil {
		return c, &holdfast.Error{Op: "back up", Class: holdfast.ErrBadOption, Detail: "a recipient", Cause: err,
			Remedy: "a recipient is the public key that age-keygen shows: age1..."}
	}
	c.keys = sum([]byte(text))

	return c, nil
}

// name says what is done.
func (c codec) name() string {
	var names []string
	if c.compress {
		names = append(names, zstdName)
	}
	if len(c.recipients) > 0 {
		names = append(names, ageName)
	}

	return strings.Join(names, "+")
}

// writer returns one that encodes into w. Close ends the encoding, and not w.
func (c codec) writer(w io.Writer) (io.WriteCloser, error) {
	all := writers{w: w}
	if len(c.recipients) > 0 {
		a, err := age.Encrypt(all.w, c.recipients...)
		if err != nil {
			return nil, err
		}
		all.w, all.closers = a, append(all.closers, a)
	}
	if c.compress {
		z, err := zstd.NewWriter(all.w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		all.w, all.closers = z, append(all.closers, z)
	}

	return &all, nil
}

// writers is a chain of them.
type writers struct {
	w       io.Writer
	closers []io.Closer // the one that is written to last
}

func (w *writers) Write(b []byte) (int, error) { return w.w.Write(b) }

func (w *writers) Close() error {
	var errs []error
	for _, c := range slices.Backward(w.closers) {
		errs = append(errs, c.Close())
	}

	return errors.Join(errs...)
}

// encode appends what bytes are encoded to a buffer.
func (c codec) encode(to, b []byte) ([]byte, error) {
	out := bytes.NewBuffer(to)
	w, err := c.writer(out)
	if err != nil {
		return to, err
	}
	_, err = w.Write(b)
	err = errors.Join(err, w.Close()) // which writes the end

	return out.Bytes(), err
}

// source is a bucket to read from.
type source struct {
	*blob.Bucket
	identities []age.Identity
	sealed     bool   // contents are checked as they are stored, and not decoded
	readers    int    // how many objects are read at a time
	limit      *limit // of what is read
}

// reader decodes what from has, which was encoded by the codec of that name.
func (s source) reader(name string, from io.Reader) (r io.ReadCloser, err error) {
	r = io.NopCloser(from)
	for _, part := range slices.Backward(strings.Split(name, "+")) {
		switch part {
		case "":
		case ageName:
			if len(s.identities) == 0 {
				return nil, &holdfast.Error{Class: holdfast.ErrBadOption, Detail: "it is encrypted",
					Remedy: "name the file with the identity that age-keygen made"}
			}
			a, err := age.Decrypt(r, s.identities...)
			if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
				return nil, &holdfast.Error{Class: holdfast.ErrBadOption, Detail: "it is encrypted for other keys",
					Remedy: "name the identity whose recipient the backup had", Cause: err}
			}
			if err != nil {
				return nil, err
			}
			r = io.NopCloser(a)
		case zstdName:
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
			if err != nil {
				return nil, err
			}
			r = z.IOReadCloser()
		default:
			return nil, &holdfast.Error{Class: holdfast.ErrVersion, Detail: "its codec is " + name,
				Remedy: "use a newer holdfast"}
		}
	}

	return r, nil
}

// decode reads into w what p is, from its object's stored bytes, and checks it.
func (s source) decode(p Piece, from io.Reader, w io.Writer) error {
	bad := func(detail string, cause error) error { return corrupt(p.Object, detail, cause) }
	name, want, bytes := p.Codec, p.Sum, p.Bytes
	if s.sealed && p.Codec != "" {
		name, want, bytes = "", p.StoredSum, p.Stored
	}
	broken := &failing{r: from}
	r, err := s.reader(name, broken)
	if err != nil {
		if errors.Is(err, holdfast.ErrBadOption) || errors.Is(err, holdfast.ErrVersion) {
			return &holdfast.Error{Op: "read a backup", Path: p.Object, Cause: err}
		}
		if broken.err != nil {
			return failed("get", p.Object, broken.err)
		}

		return bad("it cannot be decoded", err)
	}
	defer r.Close()

	// One byte more than there should be is enough to know that it is wrong.
	h := sha256.New()
	n, err := copyTo(io.MultiWriter(w, h), io.LimitReader(r, bytes+1))
	switch {
	case broken.err != nil:
		return failed("get", p.Object, broken.err)
	case err != nil && name == "":
		return err // of w
	case err != nil:
		return bad("it cannot be decoded", err)
	case n != bytes || hex.EncodeToString(h.Sum(nil)) != want:
		return bad("the checksum is wrong", nil)
	}

	return nil
}

// failing notes the error of a reader but for its end.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}

	return n, err
}
