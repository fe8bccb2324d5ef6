package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// The table of message-db, as far as it is read.
const messageDB = `
CREATE SCHEMA message_store;
CREATE TABLE message_store.messages (
	global_position bigserial NOT NULL,
	position bigint NOT NULL,
	time timestamp without time zone DEFAULT (now() AT TIME ZONE 'utc') NOT NULL,
	stream_name text NOT NULL,
	type text NOT NULL,
	data jsonb,
	metadata jsonb,
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	PRIMARY KEY (global_position)
);
CREATE UNIQUE INDEX messages_id ON message_store.messages (id);
CREATE UNIQUE INDEX messages_stream ON message_store.messages (stream_name, position);
INSERT INTO message_store.messages (stream_name, position, type, data, metadata, time)
SELECT 'account-' || i % 50, i / 50, 'Deposited', jsonb_build_object('n', i, 'html', '<&>é'),
	CASE WHEN i % 3 = 0 THEN NULL ELSE jsonb_build_object('correlationStreamName', 'x-1', 'list',
		'[1, 2.50, 1e300]'::jsonb) END,
	timestamp '2026-01-02 03:04:05.678901' + i * interval '1 microsecond'
FROM generate_series(0, 2499) i;
DELETE FROM message_store.messages WHERE global_position % 13 = 0;
INSERT INTO message_store.messages (stream_name, position, type, data) VALUES ('account:command-1', 7, 'Open', NULL);
INSERT INTO message_store.messages (stream_name, position, type, data, metadata) VALUES ('plain', 0, 'T', '{}', 'null');
`

// An import of message-db keeps ids, times and positions, can be repeated, and compares.
func TestImportMessageDB(t *testing.T) {
	t.Parallel() // it waits
	address := "host=" + dirOf(shared(t)) + " user=postgres dbname=postgres"
	db, err := pgx.Connect(t.Context(), address)
	try(t, err)
	defer db.Close(context.Background())
	_, err = db.Exec(t.Context(), messageDB)
	try(t, err)
	defer func() {
		_, err := db.Exec(context.Background(), "DROP SCHEMA message_store CASCADE")
		try(t, err)
	}()
	var rows int64
	try(t, db.QueryRow(t.Context(), "SELECT count(*) FROM message_store.messages").Scan(&rows))

	dir := filepath.Join(t.TempDir(), "into")
	run := func(want int, say string, args ...string) {
		t.Helper()
		status, stdout, stderr := result(t, holdfastCommand(t, append([]string{"import", "messagedb", address}, args...)...))
		if status != want || !strings.Contains(stdout+stderr, say) || strings.Contains(stderr, "panic") {
			t.Fatalf("%v: status %d, want %d, with %q\n%s%s", args, status, want, say, stdout, stderr)
		}
	}
	run(exitError, "does not exist", "--into", dir, "--table", "nowhere.messages")
	run(exitOK, fmt.Sprintf("%d imported, 0 were there", rows), "--into", dir, "-n", "bank")
	run(exitOK, fmt.Sprintf("0 imported, %d were there", rows), "--into", dir, "-n", "bank")
	_, err = db.Exec(t.Context(), `INSERT INTO message_store.messages (stream_name, position, type, data, global_position)
		VALUES ('late-1', 0, 'Late', '{"a": {"b": [1, 2]}}', 13)`) // a number that another transaction had taken
	try(t, err)
	run(exitOK, "1 imported", "--into", dir, "-n", "bank")

	read := func() (list []message.Message) {
		t.Helper()
		eng, err := all.OpenDir("", dir, holdfast.Options{})
		try(t, err)
		store, err := message.Open(kv.On(eng), message.Options{})
		try(t, err)
		ns, err := store.Namespace(t.Context(), "bank")
		try(t, err)
		for m, err := range ns.Read(t.Context(), message.Query{}) {
			try(t, err)
			list = append(list, m)
		}
		try(t, store.Close())
		try(t, eng.Close())
		return list
	}
	list := read()
	if int64(len(list)) != rows+1 {
		t.Fatal(len(list), rows)
	}
	// The comparison of the command is compared with another one, of a few messages.
	for _, m := range []message.Message{list[0], list[12], list[500], list[len(list)-2], list[len(list)-1]} {
		var id, stream, typ string
		var position int64
		var at time.Time
		var data, metadata bool
		try(t, db.QueryRow(t.Context(), `SELECT id::text, stream_name, type, position, time, coalesce(data, '{}') = $2::jsonb,
			coalesce(metadata, 'null') = $3::jsonb FROM message_store.messages WHERE global_position = $1`, m.Global,
			string(m.Data), orNullText(m.Metadata)).Scan(&id, &stream, &typ, &position, &at, &data, &metadata))
		if m.ID != id || m.Stream != stream || m.Type != typ || m.Position != position || !m.Time.Equal(at) ||
			!data || !metadata {
			t.Errorf("%+v, want %v %v %v %v %v, data %v, metadata %v", m, id, stream, typ, position, at, data, metadata)
		}
	}
	if m := list[12]; m.Global != 13 || m.Stream != "late-1" || string(m.Data) != `{"a":{"b":[1,2]}}` {
		t.Errorf("%+v", m)
	}

	// What cannot be kept is refused and named, and what has changed is found.
	_, err = db.Exec(t.Context(), `UPDATE message_store.messages SET data = '{"n": 0}' WHERE global_position = 100`)
	try(t, err)
	run(exitError, "position", "--into", dir, "-n", "bank")
	_, err = db.Exec(t.Context(), `UPDATE message_store.messages SET data = '[1]' WHERE global_position = 1`)
	try(t, err)
	run(exitError, "line 1", "--into", dir+"2")

	// Into a server.
	_, err = db.Exec(t.Context(), `UPDATE message_store.messages SET data = '{}' WHERE global_position = 1`)
	try(t, err)
	url, token, d := shop(t)
	run(exitOK, fmt.Sprintf("%d imported", rows+1), "--into", url, "--into-token", token, "-n", "shop")
	ns, err := d.Messages().Namespace(t.Context(), "shop")
	try(t, err)
	n, err := ns.Count(t.Context(), "")
	try(t, err)
	if n.Messages != rows+1 {
		t.Fatal(n)
	}
}

func orNullText(b []byte) string {
	if b == nil {
		return "null"
	}
	return string(b)
}
