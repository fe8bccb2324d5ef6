module github.com/holdfastdb/holdfast/internal/console

go 1.26.0

require (
	github.com/holdfastdb/holdfast v0.0.0-00010101000000-000000000000
	github.com/jedib0t/go-pretty/v6 v6.8.3
	github.com/mattn/go-isatty v0.0.24
	golang.org/x/sys v0.49.0
)

require (
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/mattn/go-runewidth v0.0.20 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/holdfastdb/holdfast => ../..
