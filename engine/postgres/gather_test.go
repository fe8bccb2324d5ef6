package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// Gets that wait at the same time are read with one message, each gets its own value, and none that is older than it.
func TestGetsTogether(t *testing.T) {
	needServer(t)
	var c counter
	opened, err := OpenWith(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{}, c.tune)
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*engine)
	defer e.Close()
	quiet(e)
	const keys = 50
	var b holdfast.Batch
	for i := range keys {
		b.Set(fmt.Append(nil, "k", i), fmt.Append(nil, "v", i))
	}
	b.Set([]byte("empty"), nil)
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}

	for range flights { // as if so many were under way
		e.gets.turns <- struct{}{}
	}
	e.cache.drop()
	var all sync.WaitGroup
	check := func(key string, want []byte) {
		all.Go(func() {
			got, err := e.Get(nil, []byte(key))
			if want == nil && !errors.Is(err, holdfast.ErrNotFound) || want != nil && (err != nil || !bytes.Equal(got, want)) {
				t.Errorf("%s: %q, %v", key, got, err)
			}
			clear(got) // it is the caller's
		})
	}
	for i := range keys {
		for range 2 {
			check(fmt.Sprint("k", i), fmt.Append(nil, "v", i))
		}
		check(fmt.Sprint("absent", i), nil)
	}
	check("empty", []byte{})
	testkit.Until(t, "all Gets wait", func() bool {
		e.gets.mu.Lock()
		defer e.gets.mu.Unlock()

		return e.gets.next != nil && len(e.gets.next.keys) == 3*keys+1
	})
	before := c.sent.Load()
	for range flights {
		<-e.gets.turns
	}
	all.Wait()
	// The statement may have to be prepared, and a connection to be made.
	if sent := c.sent.Load() - before; sent > 8 {
		t.Errorf("%d messages for Gets that waited together", sent)
	}
}

// Several keys are found by the index, and not by reading the whole space, also when nobody has analyzed the table.
func TestPlans(t *testing.T) {
	needServer(t)
	ctx := context.Background()
	data := os.Getenv(variable)
	conn, err := pgx.Connect(ctx, "host="+data+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE SCHEMA plans; SET search_path = plans; SET enable_seqscan = off"); err != nil {
		t.Fatal(err)
	}
	e, err := Open(at(data, "plans")+"&search_path=plans", holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var b holdfast.Batch
	for i := range 2000 {
		b.Set(fmt.Appendf(nil, "key%09d", i), make([]byte, 100))
	}
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{getAll, remove} {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for _, statement := range []string{"DEALLOCATE ALL", "SET plan_cache_mode = " + mode,
				"PREPARE q (int, bytea[]) AS " + sql} {
				if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := conn.Query(ctx, `EXPLAIN EXECUTE q (1, '{a,b,c}')`, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, "(k = wanted.k)") && !strings.Contains(plan, "(k = gone.k)") ||
				strings.Contains(plan, "Filter:") {
				t.Errorf("%s, %s:\n%s", sql, mode, plan)
			}
		}
	}
}
