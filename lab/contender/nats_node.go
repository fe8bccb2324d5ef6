package contender

import (
	"fmt"
)

// NATSNode is a server of a cluster that its caller starts where it likes, on machines of their own.
type NATSNode struct {
	Dir   string // where it makes a directory of its own
	Token string // that clients and servers have to know
	Sync  bool   // sync_interval: always; else the default, two minutes
	Name  string
	Host  string   // its address
	Hosts []string // those of all
}

// natsRoutePort is where servers on machines of their own reach each other.
const natsRoutePort = 6222

// StartNATSNode starts it by start, which begins a process by a command line and hands it a request, and returns where
// clients reach it. The server ends when its process is killed, and with this process.
func StartNATSNode(n NATSNode, start starter) (url string, err error) {
	q := natsRequest{Dir: n.Dir, Token: n.Token, Sync: n.Sync, Name: n.Name,
		Peer: fmt.Sprint(n.Host, ":", natsRoutePort)}
	for _, host := range n.Hosts {
		q.Peers = append(q.Peers, fmt.Sprint(host, ":", natsRoutePort))
	}
	s, err := startNATSChild(q, start)
	if err != nil {
		return "", err
	}

	return s.url, nil
}
