package bare

import (
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"modernc.org/sqlite" // the driver "sqlite", in every build

	"github.com/holdfastdb/holdfast"
)

// openSQLite opens a database of SQLite. A row becomes a key: the table's name, the separator, and its primary key,
// which is one column or the rowid. Text and blobs are there as they are, integers as 8 bytes, big-endian. The
// value is that of the only other column, or a JSON object of all others.
func openSQLite(s *Source, copied string, o Options) error {
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: copied}).String())
	if err != nil {
		return s.damaged(err)
	}
	db.SetMaxOpenConns(1)
	s.close = db.Close
	var sound string
	err = db.QueryRowContext(s.ctx, "PRAGMA quick_check(1)").Scan(&sound)
	if err == nil && sound != "ok" {
		err = fmt.Errorf("quick_check: %s", sound)
	}
	if err != nil {
		return s.closing(s.damaged(err))
	}
	tables, err := s.tables(db, o)
	if err != nil {
		return s.closing(err)
	}
	s.walk = func(each func(key, value []byte) error) error {
		for _, t := range tables {
			if err := s.table(db, t, each); err != nil {
				return err
			}
		}

		return nil
	}

	return nil
}

// sqliteError makes an error of SQLite unwrap to the error number that its result code stands for, if it is no damage.
func sqliteError(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}

	switch e.Code() & 0xff {
	case 13: // SQLITE_FULL
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	case 10: // SQLITE_IOERR
		return fmt.Errorf("%w: %w", err, syscall.EIO)
	}

	return err
}

// table is one table and how it is read.
type table struct {
	name   string
	prefix string
	key    string   // its only column of the primary key, or a name for the rowid
	other  []string // the other columns
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// tables lists what is to be read.
func (s *Source) tables(db *sql.DB, o Options) (list []table, err error) {
	rows, err := db.QueryContext(s.ctx, "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND name "+
		"NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")
	if err != nil {
		return nil, s.damaged(err)
	}
	defer rows.Close()

	found := map[string]string{}
	var names []string
	for rows.Next() {
		var name, what string
		if err := rows.Scan(&name, &what); err != nil {
			return nil, s.damaged(err)
		}
		found[name] = what
		if o.Only == "" && what != "view" || name == o.Only {
			names = append(names, name)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.damaged(err)
	}
	if o.Only != "" && len(names) == 0 {
		return nil, fail(s.path, holdfast.ErrNotFound, fmt.Sprintf("there is no table %q", o.Only), "", nil)
	}

	for _, name := range names {
		t := table{name: name, prefix: name + string(o.Separator)}
		switch {
		case found[name] != "table":
			return nil, s.refused(holdfast.ErrBadOption, fmt.Sprintf("%q", name), "is a "+found[name]+" table",
				"name the table to copy with --only")
		case o.Only != "":
			t.prefix = ""
		case strings.Contains(name, string(o.Separator)):
			return nil, s.refused(holdfast.ErrBadKey, fmt.Sprintf("table %q", name), "has the separator in its name",
				"name another --separator")
		}
		if err := s.columns(db, &t); err != nil {
			return nil, err
		}
		list = append(list, t)
	}

	return list, nil
}

// columns finds out which column is the key.
func (s *Source) columns(db *sql.DB, t *table) error {
	rows, err := db.QueryContext(s.ctx, "SELECT name, pk FROM pragma_table_info(?) ORDER BY cid", t.name)
	if err != nil {
		return s.damaged(err)
	}
	defer rows.Close()

	var keys, all []string
	for rows.Next() {
		var name string
		var pk int
		if err := rows.Scan(&name, &pk); err != nil {
			return s.damaged(err)
		}
		all = append(all, strings.ToLower(name))
		if pk > 0 {
			keys = append(keys, name)
		} else {
			t.other = append(t.other, name)
		}
	}
	if err := rows.Err(); err != nil {
		return s.damaged(err)
	}

	switch len(keys) {
	case 0:
		for _, name := range []string{"rowid", "_rowid_", "oid"} {
			if !slices.Contains(all, name) {
				t.key = name
				return nil
			}
		}
	case 1:
		t.key = keys[0]
		if len(t.other) > 0 {
			return nil
		}
	}

	return s.refused(holdfast.ErrBadOption, fmt.Sprintf("table %q", t.name),
		fmt.Sprintf("has %d columns in its primary key and %d others: one, or none, and at least one other can be copied",
			len(keys), len(t.other)),
		"copy other tables with --only, and this one with a program")
}

// table reads one table.
func (s *Source) table(db *sql.DB, t table, each func(key, value []byte) error) error {
	// The driver makes times of columns that are declared so. An expression, with a plus that does nothing, has no type.
	var parts []string
	for _, c := range append([]string{t.key}, t.other...) {
		c = quote(c)
		parts = append(parts, "typeof("+c+")", "+"+c)
	}
	rows, err := db.QueryContext(s.ctx, "SELECT "+strings.Join(parts, ", ")+" FROM "+quote(t.name))
	if err != nil {
		return s.damaged(err)
	}
	defer rows.Close()

	types, data := make([]string, 1+len(t.other)), make([]sql.RawBytes, 1+len(t.other))
	var into []any
	for i := range types {
		into = append(into, &types[i], &data[i])
	}

	var key, value []byte
	first := "" // the type of the table's keys
	for n := 1; rows.Next(); n++ {
		if err := rows.Scan(into...); err != nil {
			return s.damaged(err)
		}
		row := fmt.Sprintf("table %q, row %d", t.name, n)
		if first == "" {
			first = types[0]
		}
		if key, err = s.rowKey(key, t, types[0], first, data[0], row); err != nil {
			return err
		}
		if value, err = s.rowValue(value[:0], t, types[1:], data[1:], fmt.Sprintf("key %.40q", key)); err != nil {
			return err
		}
		if err := each(key, value); err != nil {
			return err
		}
	}

	return s.damaged(rows.Err())
}

func (s *Source) rowKey(dst []byte, t table, is, first string, data []byte, row string) ([]byte, error) {
	switch {
	case is != first:
		return nil, s.refused(holdfast.ErrBadKey, row, "has a primary key of type "+is+", and others of type "+first,
			"copy it with a program")
	case is == "text" || is == "blob":
		return prefixed(dst, t.prefix, data), nil
	case is == "integer":
		n, err := strconv.ParseInt(string(data), 10, 64)
		if err != nil || n < 0 {
			return nil, s.refused(holdfast.ErrBadKey, row, fmt.Sprintf("has the primary key %s, which is not from 0", data),
				"copy it with a program")
		}

		return binary.BigEndian.AppendUint64(append(dst[:0], t.prefix...), uint64(n)), nil
	}

	return nil, s.refused(holdfast.ErrBadKey, row, "has a primary key of type "+is, "copy it with a program")
}

func (s *Source) rowValue(dst []byte, t table, types []string, data []sql.RawBytes, key string) ([]byte, error) {
	if len(types) == 1 {
		if types[0] == "null" {
			return nil, s.refused(holdfast.ErrBadOption, key, "has NULL as its value", "copy it with a program")
		}

		return append(dst, data[0]...), nil
	}

	dst = append(dst, '{')
	for i, is := range types {
		if i > 0 {
			dst = append(dst, ',')
		}

		dst = append(appendJSON(dst, t.other[i]), ':')
		switch {
		case is == "null":
			dst = append(dst, "null"...)
		case is == "blob":
			dst = append(base64.StdEncoding.AppendEncode(append(dst, `{"base64":"`...), data[i]), `"}`...)
		case is == "text" && utf8.Valid(data[i]):
			dst = appendJSON(dst, string(data[i]))
		case is != "text" && json.Valid(data[i]):
			dst = append(dst, data[i]...)
		default:
			return nil, s.refused(holdfast.ErrBadOption, key,
				fmt.Sprintf("has a %s in column %q that JSON has no form for", is, t.other[i]),
				"copy it with a program")
		}
	}

	return append(dst, '}'), nil
}

func appendJSON(dst []byte, text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // every string has a form
	}

	return append(dst, encoded...)
}
