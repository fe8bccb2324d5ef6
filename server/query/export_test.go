package query

// Bind is for tests, which fill tables of their own.
var Bind = bind
