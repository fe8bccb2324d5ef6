package backup_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestGolden restores from a bucket that a program made whose log objects are of version 1. It has two generations: a
// plain one, and one that is compressed and encrypted. A backup that goes on there uploads no segment again.
func TestGolden(t *testing.T) {
	at := filepath.Join(t.TempDir(), "bucket")
	testkit.Try(t, os.CopyFS(at, os.DirFS("testdata/bucket-1")))
	bucket, err := backup.OpenBucket(t.Context(), "file://"+at)
	testkit.Try(t, err)
	defer bucket.Close()
	text, err := os.ReadFile("testdata/bucket-1.key")
	testkit.Try(t, err)
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	testkit.Try(t, err)

	v, err := backup.Verify(t.Context(), bucket)
	testkit.Try(t, err)
	if len(v.Damage) > 0 || v.Generations != 2 || v.Bases < 3 {
		t.Errorf("%+v", v)
	}
	gens, err := os.ReadDir(at)
	testkit.Try(t, err)
	for i, keys := range []int{12, 24} {
		want := ""
		for n := range keys {
			size := 100
			if n == 5 {
				size = 1200 << 10
			}
			want += fmt.Sprintf("key-%03d=%x\n", n, strings.Repeat(string(rune('a'+n%26)), size))
		}
		o := backup.RestoreOptions{Generation: gens[i].Name(), Identities: identities}
		if got, _ := restored(t, bucket, o); got != want {
			t.Errorf("the contents of %s differ", gens[i].Name())
		}
	}

	// The last generation that a plain backup can go on from.
	testkit.Try(t, os.RemoveAll(filepath.Join(at, gens[1].Name())))
	into := filepath.Join(t.TempDir(), "restored")
	_, err = backup.Restore(t.Context(), bucket, into, backup.RestoreOptions{})
	testkit.Try(t, err)
	e := open(t, into)
	b := start(t, e, bucket, small)
	testkit.Try(t, b.Close(t.Context()))
	want := contentsOf(t, e)
	testkit.Try(t, e.Close())
	for _, key := range keysOf(t, bucket) {
		if strings.HasPrefix(key, b.Status().Generation) && strings.Contains(key, ".seg-0-") {
			info, err := bucket.Attributes(t.Context(), key)
			testkit.Try(t, err)
			if info.Size > 1<<20 {
				t.Errorf("%s is uploaded again", key)
			}
		}
	}
	if got, _ := restored(t, bucket, backup.RestoreOptions{}); got != want {
		t.Error("the contents differ")
	}
}
