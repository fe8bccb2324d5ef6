module github.com/holdfastdb/holdfast/engine/bbolt

go 1.26.0

require (
	github.com/holdfastdb/holdfast v0.0.0-00010101000000-000000000000
	go.etcd.io/bbolt v1.5.0
)

require (
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/holdfastdb/holdfast => ../..
