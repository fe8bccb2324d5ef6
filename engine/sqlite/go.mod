module github.com/holdfastdb/holdfast/engine/sqlite

go 1.26.0

require (
	github.com/holdfastdb/holdfast v0.0.0-00010101000000-000000000000
	github.com/mattn/go-sqlite3 v1.14.52
	golang.org/x/sys v0.49.0
	modernc.org/sqlite v1.55.0
)

require (
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	modernc.org/libc v1.79.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/holdfastdb/holdfast => ../..
