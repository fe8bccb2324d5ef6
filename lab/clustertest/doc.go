// Package clustertest has no code of its own: its tests run clusters of three processes on
// store/raftlog, kill them, and check what they had acknowledged.
//
//	go test ./lab/clustertest                   # half a minute
//	go test ./lab/clustertest -run=TestCluster -timeout=0 -cluster.for=10m
package clustertest
