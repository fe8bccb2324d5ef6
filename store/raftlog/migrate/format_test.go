package migrate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
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

// TestEncodings decodes what no version of the library writes today, but msgpack allows.
func TestEncodings(t *testing.T) {
	sec := int64(1700000000)
	base := func(at string) []byte {
		return []byte("\x86\xa5Index\xcd\x01\x02\xa4Term\xcf\x00\x00\x00\x00\x00\x00\x00\x09\xa4Type\xd0\x01\xa4Data\xc4\x02ab\xd9\x0aExtensions\xda\x00\x01c\xaaAppendedAt" + at)
	}
	at := time.Unix(sec, 7)
	binary, err := at.MarshalBinary()
	ok(t, err)
	for name, test := range map[string]struct {
		bytes string
		want  time.Time
	}{
		"nil":         {"\xc0", time.Time{}},
		"binary":      {"\xc4\x0f" + string(binary), at},
		"binary, str": {"\xaf" + string(binary), at},
		"ext 4":       {"\xd6\xff" + "\x65\x53\xf1\x00", time.Unix(sec, 0)},
		"ext 8":       {"\xd7\xff" + "\x00\x00\x00\x1c\x65\x53\xf1\x00", at},
		"ext 12":      {"\xc7\x0c\xff" + "\x00\x00\x00\x07\x00\x00\x00\x00\x65\x53\xf1\x00", at},
		"raw 4":       {"\xa4" + "\x65\x53\xf1\x00", time.Unix(sec, 0)},
		"raw 12":      {"\xac" + "\x00\x00\x00\x07\x00\x00\x00\x00\x65\x53\xf1\x00", at},
	} {
		t.Run(name, func(t *testing.T) {
			var got raft.Log
			ok(t, decodeMsgpack(base(test.bytes), &got))
			if field, ok := same(&got, &raft.Log{Index: 258, Term: 9, Type: 1, Data: []byte("ab"), Extensions: []byte("c"), AppendedAt: test.want}); !ok {
				t.Errorf("%s: %+v", field, got)
			}
			for n := range base(test.bytes) {
				if err := decodeMsgpack(base(test.bytes)[:n], &got); err == nil {
					t.Errorf("the first %d bytes are an entry", n)
				}
			}
		})
	}
	for _, bad := range []string{"\xd6\xfe\x65\x53\xf1\x00", "\xc7\x0b\xff\x00\x00\x00\x00\x00\x00\x00\x00\x65\x53\xf1", "\xd7\xff\xff\xff\xff\xff\x65\x53\xf1\x00", "\xa5hello", "\x07", "\xc0\xc0", "\xaf" + string(binary[:14]) + "\x00" + "\xc0"} {
		var got raft.Log
		if err := decodeMsgpack(base(bad), &got); err == nil {
			t.Errorf("%x is a time", bad)
		}
	}
	for _, bad := range []string{
		"", "\x80", "\xa1", "\x84\xa5Index\x01\xa4Term\x01\xa4Type\x01\xa4Dbta\xa0", "\x83\xa5Index\x01\xa4Term\x01\xa4Type\x01", "\x84\xa5Index\x01\xa5Index\x01\xa4Type\x01\xa4Data\xa0",
		"\x84\xa5Index\xff\xa4Term\x01\xa4Type\x01\xa4Data\xa0", "\x84\xa5Index\xd1\xff\xff\xa4Term\x01\xa4Type\x01\xa4Data\xa0", "\x84\xa5Index\x01\xa4Term\x01\xa4Type\xcd\x01\x00\xa4Data\xa0",
		"\x84\xa5Index\x01\xa4Term\x01\xa4Type\x01\xa4Data\x05", "\x84\xa5Index\x01\xa4Term\x01\xa4Type\x01\xa4Data\xdb\xff\xff\xff\xff",
	} {
		var got raft.Log
		if err := decodeMsgpack([]byte(bad), &got); err == nil {
			t.Errorf("%q is an entry: %+v", bad, got)
		}
	}
}

// TestLogHasNoOtherFields: a new field of raft.Log would have to be copied too.
func TestLogHasNoOtherFields(t *testing.T) {
	if n := reflect.TypeFor[raft.Log]().NumField(); n != 6 {
		t.Errorf("raft.Log has %d fields", n)
	}
}

func FuzzMsgpack(f *testing.F) {
	rnd := rand.New(rand.NewPCG(12, 12))
	for _, newTimes := range []bool{false, true} {
		path := makeBolt(f, newTimes, func(to both) { store(f, rnd, to, logs(rnd, 1, 20)) })
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
		ok(f, err)
		ok(f, db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("logs")).ForEach(func(_, v []byte) error {
				f.Add(bytes.Clone(v))
				return nil
			})
		}))
		ok(f, db.Close())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var log raft.Log
		if err := decodeMsgpack(b, &log); err == nil && int64(len(b)) < size(&log) {
			t.Errorf("%d bytes of data in %d", size(&log), len(b))
		}
	})
}

// FuzzWALEntry: what is taken for an entry, raft-wal takes for the same.
func FuzzWALEntry(f *testing.F) {
	rnd := rand.New(rand.NewPCG(13, 13))
	for _, l := range logs(rnd, 1, 20) {
		var b bytes.Buffer
		ok(f, (&wal.BinaryCodec{}).Encode(l, &b))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var ours, theirs raft.Log
		if decodeWAL(b, &ours) != nil {
			return
		}
		if err := (&wal.BinaryCodec{}).Decode(b, &theirs); err != nil {
			t.Fatal(err)
		}
		if field, ok := same(&ours, &theirs); !ok {
			t.Errorf("%s: %+v, %+v", field, ours, theirs)
		}
	})
}

// FuzzBolt: any file is read to its end, or refused.
func FuzzBolt(f *testing.F) {
	rnd := rand.New(rand.NewPCG(14, 14))
	path := filepath.Join(f.TempDir(), "raft.db")
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true, BoltOptions: &bbolt.Options{PageSize: 1024}})
	ok(f, err)
	for i := range uint64(6) {
		ok(f, db.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: bytesOf(rnd, 100)}))
	}
	votes(f, db, 3)
	ok(f, db.DeleteRange(1, 3))
	ok(f, db.Close())
	b, err := os.ReadFile(path)
	ok(f, err)
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	f.Add(b[:(n+1023)/1024*1024])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, page := range []int64{1024, 4096} {
			file := &boltFile{r: bytes.NewReader(b), path: "raft.db", size: int64(len(b)), page: page}
			if file.metas() != nil || file.readRoot() != nil || file.check() != nil {
				continue
			}
			s := &source{kind: RaftBoltDB, bolt: file}
			if s.readStable("conf", &Options{}) == nil && s.checkStable() == nil {
				_ = s.check(func(*raft.Log) error { return nil })
			}
		}
	})
}

// FuzzSegment: what a check has found sound is read.
func FuzzSegment(f *testing.F) {
	rnd := rand.New(rand.NewPCG(15, 15))
	for _, batches := range []int{1, 3} {
		path := makeWAL(f, 4<<10, func(to both) {
			for i := range batches {
				ok(f, to.StoreLogs([]*raft.Log{{Index: uint64(2*i + 1), Data: bytesOf(rnd, 9)}, {Index: uint64(2*i + 2)}}))
			}
		})
		names, err := filepath.Glob(filepath.Join(path, "*.wal"))
		ok(f, err)
		b, err := os.ReadFile(names[0])
		ok(f, err)
		b = b[:min(int64(len(b)), usedBytes(f, names[0])+16)]
		f.Add(b, uint64(0), uint64(0))
		f.Add(b, uint64(len(b)-24), uint64(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, start, last uint64) {
		for _, drop := range []bool{false, true} {
			seg := &walSegment{walInfo: walInfo{ID: 0, BaseIndex: 1, MinIndex: 1, MaxIndex: last, Codec: walCodec, IndexStart: start}}
			if start > 0 {
				seg.SealTime = time.Unix(1, 0)
			}
			w := &walSource{}
			if w.checkFile(bytes.NewReader(b), int64(len(b)), seg, drop) != nil {
				continue
			}
			n := uint64(0)
			err := seg.walk(bytes.NewReader(b), int64(len(b)), func(int64, *raft.Log) error { n++; return nil })
			if err == nil && n != seg.last {
				t.Errorf("%d entries, and the last index is %d", n, seg.last)
			}
		}
	})
}
