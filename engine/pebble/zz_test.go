package pebble
import ("testing";"time";"sort"; lib "github.com/cockroachdb/pebble/v2"; "github.com/holdfastdb/holdfast"; "encoding/binary")
func TestZZ(t *testing.T) {
	db := bare(t); db2 := bare(t); e := adapted(t).(*Engine)
	db2.Flush()
	value := make([]byte, 100); key := make([]byte, 8)
	n := uint64(0)
	var b holdfast.Batch
	var ds [3][]float64
	for range 1500 {
		for k := range 3 {
			s := time.Now()
			n++; binary.BigEndian.PutUint64(key, n)
			switch k {
			case 0: applyBare(db, key, value, lib.Sync)
			case 1: b.Reset(); b.Set(key, value); holdfast.Commit(e, &b, holdfast.Power)
			case 2: applyBare(db2, key, value, lib.Sync)
			}
			ds[k] = append(ds[k], float64(time.Since(s).Microseconds()))
		}
	}
	for k := range 3 { sort.Float64s(ds[k]); t.Logf("kind %d: p10 %.0f p25 %.0f p50 %.0f p75 %.0f", k, ds[k][150], ds[k][375], ds[k][750], ds[k][1125]) }
	t.Log(e.Metrics().Syncs, e.Metrics().Commits)
}
