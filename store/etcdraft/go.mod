module github.com/holdfastdb/holdfast/store/etcdraft

go 1.26.0

require (
	github.com/holdfastdb/holdfast v0.0.0-00010101000000-000000000000
	go.etcd.io/raft/v3 v3.7.0
	google.golang.org/protobuf v1.36.11
)

require golang.org/x/sys v0.49.0 // indirect

replace github.com/holdfastdb/holdfast => ../..
