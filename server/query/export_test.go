package query

// Bind is for tests, which fill tables of their own.
var Bind = bind

// Abandoned counts the connections that were abandoned, and whose memory was given back.
func Abandoned(db *DB) int { return db.abandoned }
