package migrate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast/vfs"
)

// TestOldFiles imports files that raft-boltdb of version 1 has made with boltdb/bolt, with the versions of raft and
// go-msgpack in their names; see testdata/README.md.
func TestOldFiles(t *testing.T) {
	for name, has := range map[string]struct{ extensions, times bool }{
		"raft-1.1.0-msgpack-0.5.5":  {false, false},
		"raft-1.3.11-msgpack-0.5.5": {true, true},
		"raft-1.5.0-msgpack-1.1.5":  {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", name+".db.gz"))
			ok(t, err)
			defer f.Close()
			z, err := gzip.NewReader(f)
			ok(t, err)
			b, err := io.ReadAll(z)
			ok(t, err)
			path := filepath.Join(t.TempDir(), "raft.db")
			ok(t, os.WriteFile(path, b, 0o600))
			var list []*raft.Log
			for i := uint64(13); i <= 60; i++ {
				l := &raft.Log{Index: i, Term: 1 + i/10, Type: raft.LogType(i % 6)}
				if i%4 != 0 {
					l.Data = fmt.Appendf(nil, "data of %d", i)
				}
				if i == 50 {
					l.Data = make([]byte, 5000)
					for j := range l.Data {
						l.Data[j] = byte(j * j)
					}
				}
				if has.extensions && i%5 == 0 {
					l.Extensions = []byte{1, 2, byte(i)}
				}
				if has.times && i%3 != 0 {
					l.AppendedAt = time.Unix(1600000000+int64(i), int64(i%7)*1111)
				}
				list = append(list, l)
			}
			e := memory(t, vfs.NewMem())
			_, err = Import(t.Context(), path, e, Options{})
			ok(t, err)
			want(t, e, "", list, map[string]any{currentTerm: uint64(9), lastVoteTerm: uint64(8), lastVoteCand: "10.1.1.1:8300"})
		})
	}
}

// TestBoltShapes reads what bolt can be told to write otherwise.
func TestBoltShapes(t *testing.T) {
	for name, o := range map[string]bbolt.Options{
		"small pages":      {PageSize: 1024},
		"large pages":      {PageSize: 32 << 10},
		"no freelist":      {NoFreelistSync: true},
		"map freelist":     {FreelistType: bbolt.FreelistMapType},
		"preload freelist": {PreLoadFreelist: true, PageSize: 2048},
	} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(11, 11))
			path := filepath.Join(t.TempDir(), "some.db")
			db, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &o, NoSync: true})
			ok(t, err)
			list := logs(rnd, 1, 2000)
			store(t, rnd, db, list)
			ok(t, db.DeleteRange(1, 1500))
			for i := range 300 { // a bucket with pages of its own
				ok(t, db.Set(fmt.Appendf(nil, "key %d", i), bytesOf(rnd, i)))
			}
			ok(t, db.Close())
			e := memory(t, vfs.NewMem())
			r, err := Import(t.Context(), path, e, Options{})
			ok(t, err)
			want(t, e, "", list[1500:], nilKeys(r.Keys))
			if len(r.Keys) != 300 {
				t.Errorf("%d keys", len(r.Keys))
			}
		})
	}
}

// nilKeys is keys whose values want does not look at: Import has compared them.
func nilKeys(names []string) map[string]any {
	m := map[string]any{}
	for _, n := range names {
		m[n] = nil
	}
	return m
}

// TestOtherBuckets are said to be there.
func TestOtherBuckets(t *testing.T) {
	path := makeBolt(t, false, func(to both) { votes(t, to, 3) })
	db, err := bbolt.Open(path, 0o600, nil)
	ok(t, err)
	ok(t, db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("mine"))
		if err != nil {
			return err
		}
		inner, err := b.CreateBucket([]byte("inner"))
		if err != nil {
			return err
		}
		return inner.Put([]byte("k"), make([]byte, 20000))
	}))
	ok(t, db.Close())
	r, err := Import(t.Context(), path, memory(t, vfs.NewMem()), Options{})
	ok(t, err)
	if len(r.Notes) != 1 || !bytes.Contains([]byte(r.Notes[0]), []byte(`"mine"`)) {
		t.Errorf("notes: %q", r.Notes)
	}
}
