package contender

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestOrders: an order is there as a whole, also after a crash of the server; one whose position is taken leaves
// nothing, if it is one transaction.
func TestOrders(t *testing.T) {
	t.Parallel() // it waits
	for _, peer := range TaskEngines() {
		if peer.Name != River {
			continue
		}
		if p := peer.Describe().Promise(holdfast.Process); p.Given == 0 {
			t.Skip(p.Why)
		}
		dir := filepath.Join(t.TempDir(), "queue")
		q := openTasks(t, peer, dir, holdfast.Process, 0).(OrdersEngine)
		defer func() { _ = q.Close() }()
		order := func(stream string, position int64) Order {
			return Order{Stream: stream, Position: position, Message: []byte(`{"is":"` + stream + `"}`),
				Task: TaskSpec{Args: taskArgs(int(position))}, Row: []byte("of " + stream)}
		}

		for _, stream := range []string{"together-1", "apart-1"} {
			for position := range int64(2) {
				if id, err := q.Order(t.Context(), order(stream, position), stream == "apart-1"); err != nil || id == "" {
					t.Fatalf("order %d of %s: %q, %v", position, stream, id, err)
				}
			}
		}
		if _, err := q.Order(t.Context(), order("together-1", 1), false); err == nil {
			t.Error("a position was taken twice")
		}

		q.(interface{ kill() }).kill()
		_ = q.Close()
		q = openTasks(t, peer, dir, holdfast.Process, 0).(OrdersEngine)
		for _, stream := range []string{"together-1", "apart-1", "none-1"} {
			var got []string
			err := q.Orders(t.Context(), stream, func(message, row []byte) error {
				got = append(got, string(message)+" "+string(row))
				return nil
			})
			one := `{"is":"` + stream + `"} of ` + stream
			want := []string{one, one}
			if stream == "none-1" {
				want = nil
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s has %q, %v", stream, got, err)
			}
		}
		waiting := 0
		err := q.List(t.Context(), func(k Task) error {
			if k.State == task.Waiting {
				waiting++
			}
			return nil
		})
		if err != nil || waiting != 4 {
			t.Errorf("%d tasks wait, want those of 4 orders: %v", waiting, err)
		}
	}
}
